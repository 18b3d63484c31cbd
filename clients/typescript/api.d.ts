// Made by scripts/client-types of the server's description of itself; not to be edited.

/** A domain or a schema to accept unchanged. If ``source`` is given, risks are also looked for in the tables. ``confirm`` names the kinds of findings that the steward confirms. */
export type AcceptanceRequest = {
  "domain": Record<string, unknown>;
  "source"?: string | null;
  "confirm"?: Array<string>;
};

/** An aggregate. ``probability`` belongs to a quantile. */
export type AggregateFields = {
  "aggregate": "count" | "distinct" | "sum" | "mean" | "variance" | "deviation" | "sample_variance" | "sample_deviation" | "median" | "quantile" | "minimum" | "maximum" | "iqr";
  "of"?: string | null;
  "probability"?: string | number | null;
};

/** The search for classes. */
export type AnonymizationMethod = "optimal" | "samarati" | "mondrian" | "k-member";

/** An anonymized table, with the options of ``sfumato anonymize``. ``hierarchies`` are documents with ``attribute`` and ``rows``, leaf first and top last. ``criteria`` are further criteria in the form of the command line. ``suppression`` is a share, and ``suppress_rows`` the same limit in rows. ``keep`` are columns to publish unchanged. ``keep_anyway`` are such columns without a check of their content. ``seconds`` end optimal or k-member early. ``cut`` is the rule for cuts of Mondrian. ``count`` is what criteria count: the units of the domain, or rows. */
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

/** A question in SQL or as fields, its loss, and the confidence of its intervals. */
export type AskRequest = {
  "sql"?: string | null;
  "query"?: QueryFields | null;
  "loss": LossFields;
  "confidence"?: string | number;
  "whole"?: boolean;
  "truncation"?: number | null;
};

/** The cap of an analyst on a dataset. No loss lifts the cap, and a loss of 0 shuts the analyst out. */
export type CapRequest = {
  "analyst": string;
  "loss"?: LossFields | null;
};

/** A table with several rows per person. Fields that are left out are as in the schema. */
export type ChildFields = {
  "table": string;
  "order"?: string | null;
  "falling"?: boolean;
  "most"?: number | null;
  "memory"?: number;
  "final"?: Array<string> | null;
};

/** A condition on an attribute. ``values`` are alternatives, and conditions are joined by AND. */
export type ConditionFields = {
  "attribute": string;
  "comparison": "=" | "<>" | "<" | "<=" | ">" | ">=" | "in" | "missing" | "present";
  "values"?: Array<string | boolean | number>;
};

/** A question with a loss, to estimate its error, or with an error, to estimate its loss. */
export type CostRequest = {
  "sql"?: string | null;
  "query"?: QueryFields | null;
  "loss"?: LossFields | null;
  "error"?: string | number | null;
  "rows"?: number | null;
  "confidence"?: string | number;
  "truncation"?: number | null;
};

/** The unit in which classes are counted. */
export type CountOption = "units" | "rows";

/** The rule for cuts of Mondrian. The published variant tries attributes in their order. */
export type CutOption = "greedy" | "balanced" | "relaxed" | "strict" | "in-order";

/** A dataset to register: the place of its table, its accepted domain, and its privacy budget. The limit may be a budget per month, such as ``0.5 a month for 12 months``. A schema instead of the domain registers several tables in a folder or a database. */
export type DatasetRequest = {
  "name": string;
  "source": string;
  "domain": Record<string, unknown>;
  "limit": string;
  "rows"?: number | null;
  "discoverable"?: Array<string>;
  "second_budget"?: boolean;
};

/** A table, a folder of tables or a database to describe. ``unit`` and ``name`` are for several tables. */
export type DraftRequest = {
  "source": string;
  "unit"?: string | null;
  "name"?: string | null;
};

/** An analyst to let in or to shut out. */
export type GrantRequest = {
  "analyst": string;
  "shut_out"?: boolean;
};

/** A key to issue. */
export type KeyRequest = {
  "name": string;
  "scope": "steward" | "analyst" | "officer" | "monitor";
  "days": number;
};

/** A privacy loss: epsilon, epsilon with delta, or rho. Text and numbers are read exactly: 0.1 is one tenth. */
export type LossFields = {
  "epsilon"?: string | number | null;
  "delta"?: string | number | null;
  "rho"?: string | number | null;
};

/** The treatment of a row with a missing or unknown quasi-identifier. */
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

/** A new name for a dataset. */
export type RenameRequest = {
  "name": string;
};

/** The end of all releases of a dataset, or its withdrawal. */
export type RetirementRequest = {
  "retired"?: boolean;
};

/** A key that replaces another. The old key works for some more hours. */
export type RotationRequest = {
  "overlap_hours"?: number;
};

/** A synthetic table to make in the background, or linked tables if the dataset has several. */
export type SynthesisFields = {
  "method": "auto" | "histogram" | "related";
  "loss": LossFields;
  "attributes"?: Array<string>;
  "zeros"?: Array<Record<string, unknown>>;
  "reuse"?: boolean;
  "children"?: Array<ChildFields>;
};

/** The terms of a dataset. Limits are in the measure of its own limit. */
export type TermsRequest = {
  "granted_only"?: boolean;
  "default_cap"?: string | null;
  "most"?: string | null;
  "approval_above"?: string | null;
};

