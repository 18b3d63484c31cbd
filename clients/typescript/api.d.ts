// Made by scripts/client-types of the server's description of itself; not to be edited.

/** A domain or a schema to be accepted as it stands; with its ``source``, risks are looked for in the tables. */
export type AcceptanceRequest = {
  "domain": Record<string, unknown>;
  "source"?: string | null;
};

/** One aggregate; ``probability`` belongs to a quantile. */
export type AggregateFields = {
  "aggregate": "count" | "distinct" | "sum" | "mean" | "variance" | "deviation" | "median" | "quantile" | "minimum" | "maximum" | "iqr";
  "of"?: string | null;
  "probability"?: string | number | null;
};

/** How classes are found. */
export type AnonymizationMethod = "optimal" | "samarati" | "mondrian" | "k-member";

/** An anonymised table: what ``sfumato anonymize`` takes. ``hierarchies`` are documents with ``attribute`` and ``rows``, leaf first and top last; ``criteria`` go beyond k-anonymity and are spelled as on the command line; ``suppression`` is a share, ``suppress_rows`` the same limit in rows; ``keep`` are columns to publish as they are, ``keep_anyway`` those to publish although ``keep`` refuses them; ``seconds`` end optimal or k-member early; ``cut`` says where Mondrian cuts; ``count`` says what criteria count, the units that the domain names or their rows. */
export type AnonymizeRequest = {
  "method": AnonymizationMethod;
  "quasi": Array<string>;
  "k": number;
  "suppression"?: string | number | null;
  "suppress_rows"?: number | null;
  "criteria"?: Array<string>;
  "keep"?: Array<string>;
  "keep_anyway"?: Array<string>;
  "missing"?: MissingValues;
  "hierarchies"?: Array<Record<string, unknown>>;
  "seconds"?: number | null;
  "cut"?: CutOption | null;
  "count"?: CountOption;
};

/** A question, in SQL or as fields, the loss it may cost, and how sure its intervals are to be. */
export type AskRequest = {
  "sql"?: string | null;
  "query"?: QueryFields | null;
  "loss": LossFields;
  "confidence"?: string | number;
  "whole"?: boolean;
  "truncation"?: number | null;
};

/** What an analyst may spend of a dataset; no loss lifts the cap, and one of 0 shuts the analyst out. */
export type CapRequest = {
  "analyst": string;
  "loss"?: LossFields | null;
};

/** A table of which a person has several rows; what is left out is as the schema says. */
export type ChildFields = {
  "table": string;
  "order"?: string | null;
  "falling"?: boolean;
  "most"?: number | null;
  "memory"?: number;
  "final"?: Array<string> | null;
};

/** One condition on an attribute; ``values`` are alternatives, and conditions are joined by AND. */
export type ConditionFields = {
  "attribute": string;
  "comparison": "=" | "<>" | "<" | "<=" | ">" | ">=" | "in" | "missing" | "present";
  "values"?: Array<string | boolean | number>;
};

/** A question, and either a loss, to be told the error, or an error, to be told the loss. */
export type CostRequest = {
  "sql"?: string | null;
  "query"?: QueryFields | null;
  "loss"?: LossFields | null;
  "error"?: string | number | null;
  "rows"?: number | null;
  "confidence"?: string | number;
  "truncation"?: number | null;
};

/** What classes are counted in. */
export type CountOption = "units" | "rows";

/** Where Mondrian cuts; the published variant tries attributes in their order. */
export type CutOption = "greedy" | "balanced" | "relaxed" | "strict" | "in-order";

/** A dataset to register: where its table lies, its accepted domain, and the most that may ever be released. The limit may be one of each month, such as ``0.5 a month for 12 months``. A schema in the place of the domain registers several tables, which lie in a folder or a database. */
export type DatasetRequest = {
  "name": string;
  "source": string;
  "domain": Record<string, unknown>;
  "limit": string;
  "rows"?: number | null;
  "discoverable"?: Array<string>;
  "second_budget"?: boolean;
};

/** A table, a folder of tables or a database to be described; ``unit`` and ``name`` are of several tables. */
export type DraftRequest = {
  "source": string;
  "unit"?: string | null;
  "name"?: string | null;
};

/** An analyst to be let in, or shut out. */
export type GrantRequest = {
  "analyst": string;
  "shut_out"?: boolean;
};

/** A key to issue. */
export type KeyRequest = {
  "name": string;
  "scope": "steward" | "analyst" | "monitor";
  "days": number;
};

/** A privacy loss: epsilon, epsilon with delta, or rho, as text or as numbers; 0.1 is one tenth. */
export type LossFields = {
  "epsilon"?: string | number | null;
  "delta"?: string | number | null;
  "rho"?: string | number | null;
};

/** What becomes of a row whose quasi-identifier is missing or unknown. */
export type MissingValues = "category" | "suppress";

/** Why a request was refused or failed (RFC 9457); `type` is stable. */
export type Problem = {
  "type": string;
  "title": string;
  "status": number;
  "detail": string;
  "charged": boolean | null;
  "line"?: number;
  "column"?: number;
  "errors"?: Array<{
  "place": string;
  "reason": string;
}>;
  "spent_by"?: Record<string, string>;
};

/** A question without SQL. */
export type QueryFields = {
  "aggregates": Array<AggregateFields>;
  "by"?: Array<string>;
  "where"?: Array<ConditionFields>;
};

/** What a dataset is to be called. */
export type RenameRequest = {
  "name": string;
};

/** Whether nothing more is to be released of a dataset. */
export type RetirementRequest = {
  "retired"?: boolean;
};

/** A key to issue in the place of another, which goes on working for some hours. */
export type RotationRequest = {
  "overlap_hours"?: number;
};

/** A synthetic table to make in the background; or, of a dataset of several, related tables. */
export type SynthesisFields = {
  "method": "auto" | "histogram" | "related";
  "loss": LossFields;
  "attributes"?: Array<string>;
  "zeros"?: Array<Record<string, unknown>>;
  "reuse"?: boolean;
  "children"?: Array<ChildFields>;
};

/** On which terms a dataset is asked; limits are in the measure of its own limit. */
export type TermsRequest = {
  "granted_only"?: boolean;
  "default_cap"?: string | null;
  "most"?: string | null;
  "approval_above"?: string | null;
};

