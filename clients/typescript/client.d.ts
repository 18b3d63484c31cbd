import type { AskRequest, CostRequest, LossFields, Problem, QueryFields, SynthesisFields } from "./api.js";

export type * from "./api.js";

/** An estimate with its error, and the interval that holds the exact answer with the stated confidence. */
export type Estimate = { estimate: number; standard_error: number; low: number; high: number };

/** An answer: one row a group, one value an aggregate. */
export type Reply = {
  groups: string[];
  columns: string[];
  confidence: number;
  rows: Array<{ key: string[]; values: Estimate[] }>;
  remarks: string[];
  guarantee: string;
  cost: string;
};

/** The error to expect of each number of an answer. */
export type Expected = { name: string; standard_error: number; half_width: number; measure: string; rows: number | null };

/** What a server refused; `charged` says whether something was spent. */
export class ServerError extends Error {
  readonly problem: Problem;
  readonly charged: boolean | null;
}

export type Terms = LossFields & Pick<AskRequest, "confidence" | "whole" | "truncation">;
export type CostTerms = LossFields & Pick<CostRequest, "confidence" | "rows" | "truncation">;
export type Options = { timeout?: number; fetch?: typeof fetch };

export class SfumatoClient {
  constructor(address: string, key: string, options?: Options);
  datasets(): Promise<Array<Record<string, unknown>>>;
  dataset(name: string): Promise<Record<string, unknown>>;
  budget(name: string): Promise<Record<string, unknown>>;
  accuracy(name: string, sql: string, terms: CostTerms): Promise<Expected[]>;
  cost(name: string, sql: string, error: string | number, terms?: Omit<CostTerms, keyof LossFields>): Promise<string>;
  ask(name: string, sql: string, terms: Terms, retryKey?: string): Promise<Reply>;
  query(name: string, query: QueryFields, terms: Terms, retryKey?: string): Promise<Reply>;
  release(name: string, request: SynthesisFields): Promise<string>;
  progress(job: string): Promise<Record<string, unknown>>;
  rows(job: string): Promise<string>;
}
