import type {
  AcceptanceRequest,
  AnonymizeRequest,
  AskRequest,
  CostRequest,
  DatasetRequest,
  DraftRequest,
  LossFields,
  Problem,
  QueryFields,
  SynthesisFields,
  TermsRequest,
} from "./api.js";

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

/** An entry of a journal. */
export type Entry = {
  number: number;
  time: string;
  kind: string;
  family: string;
  method: string;
  analyst: string | null;
  statement: string;
  asked: string;
  cost: string;
  parameters: unknown;
  hash: string;
};

/** How far a job is; `note` says why one failed. */
export type Progress = {
  job: string;
  dataset: string;
  state: "queued" | "running" | "done" | "failed";
  progress: number;
  note: string;
  statement: Described | null;
};

/** A release that waits for the approval of a second steward, or has one that is not used. */
export type Approval = {
  id: string;
  dataset: string;
  asked_by: string;
  asked: string;
  question: string;
  cost: string;
  approved_by: string | null;
  expires: string;
};

/** A domain or schema read off tables, to be edited to what is publicly known, and what to look at. */
export type Draft = { domain: Described; remarks: string[] };

/** A description that says who accepted it, and what is risky in it. */
export type Accepted = { domain: Described; risks: string[] };

export type Described = Record<string, unknown>;

/** What a server refused; `charged` says whether something was spent. */
export class ServerError extends Error {
  readonly problem: Problem;
  readonly charged: boolean | null;
}

export type Terms = LossFields & Pick<AskRequest, "confidence" | "whole" | "truncation">;
export type CostTerms = LossFields & Pick<CostRequest, "confidence" | "rows" | "truncation">;
/**
 * `ca` is a file with the certificates of the only authorities to trust, in PEM, and `proxy` is `http://HOST:PORT`.  By
 * default `SSL_CERT_FILE`, `NODE_EXTRA_CA_CERTS`, `HTTPS_PROXY` and `NO_PROXY` decide in Node, and the browser decides itself.
 */
export type Options = { timeout?: number; ca?: string; proxy?: string; fetch?: typeof fetch };

export class SfumatoClient {
  constructor(address: string, key: string, options?: Options);
  datasets(): Promise<Described[]>;
  dataset(name: string): Promise<Described>;
  budget(name: string): Promise<Described>;
  accuracy(name: string, sql: string, terms: CostTerms): Promise<Expected[]>;
  cost(name: string, sql: string, error: string | number, terms?: Omit<CostTerms, keyof LossFields>): Promise<string>;
  ask(name: string, sql: string, terms: Terms, retryKey?: string): Promise<Reply>;
  query(name: string, query: QueryFields, terms: Terms, retryKey?: string): Promise<Reply>;
  journal(name: string): Promise<Entry[]>;
  release(name: string, request: SynthesisFields): Promise<string>;
  anonymize(name: string, request: AnonymizeRequest): Promise<string>;
  progress(job: string): Promise<Progress>;
  rows(job: string): Promise<string>;
  parquet(job: string): Promise<Uint8Array>;
  /** The tables of a finished job that belong together, as a ZIP file. */
  tables(job: string, options?: { parquet?: boolean }): Promise<Uint8Array>;
  approvals(): Promise<Approval[]>;
  approve(id: string): Promise<{ approved: string }>;
  refuseApproval(id: string): Promise<{ closed: string }>;
  draft(request: DraftRequest): Promise<Draft>;
  accept(request: AcceptanceRequest): Promise<Accepted>;
  /** A limit may be one of each month, such as `0.5 a month for 12 months`. */
  register(request: DatasetRequest): Promise<Described>;
  rename(name: string, to: string): Promise<Described>;
  retire(name: string, retired?: boolean): Promise<Described>;
  terms(name: string): Promise<TermsRequest & { granted: string[]; shut_out: string[] }>;
  /** Sets all of them: what is not said is lifted. */
  setTerms(name: string, terms: TermsRequest): Promise<TermsRequest & { granted: string[]; shut_out: string[] }>;
  /** What an analyst may spend; without a loss the cap is lifted. */
  cap(name: string, analyst: string, loss?: LossFields | null): Promise<Described>;
}
