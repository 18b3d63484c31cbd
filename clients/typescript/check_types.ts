// What a program may and may not write, as the compiler reads client.d.ts: npm run types.
import { type Approval, type Draft, type Reply, ServerError, SfumatoClient } from "./client.js";

export const asked = async (client: SfumatoClient): Promise<number> => {
  const reply: Reply = await client.ask("census", "SELECT COUNT(*) FROM census", { epsilon: "0.1", whole: true });
  const more = await client.query("census", { aggregates: [{ aggregate: "mean", of: "age" }] }, { rho: "0.1" });
  // @ts-expect-error  there is no such aggregate
  await client.query("census", { aggregates: [{ aggregate: "guess" }] }, { rho: "0.1" });
  // @ts-expect-error  a loss is said
  await client.ask("census", "SELECT COUNT(*) FROM census");
  // @ts-expect-error  of these words there is none
  await client.ask("census", "SELECT COUNT(*) FROM census", { gamma: "1" });
  return reply.rows[0]!.values[0]!.estimate + more.rows.length;
};

export const owned = async (client: SfumatoClient): Promise<string> => {
  const drafted: Draft = await client.draft({ source: "people.csv" });
  const { domain } = await client.accept({ domain: drafted.domain, source: "people.csv" });
  await client.register({ name: "people", source: "people.csv", domain, limit: "0.5 a month for 12 months" });
  // @ts-expect-error  a dataset has a limit
  await client.register({ name: "people", source: "people.csv", domain });
  await client.setTerms("people", { approval_above: "0.1" });
  const waiting: Approval[] = await client.approvals();
  for (const { id, approved_by: by } of waiting) if (by === null) await client.approve(id);
  const job = await client.release("people", { method: "auto", loss: { epsilon: "1" } });
  const { state } = await client.progress(job);
  // @ts-expect-error  a job has no such state
  if (state === "asleep") throw new ServerError();
  const file: Uint8Array = await client.parquet(job);
  return `${file.length} bytes`;
};
