// What a program of a stranger does, against the server that the environment names; prints what it found as JSON.
import { ServerError, SfumatoClient } from "./client.js";

const { SFUMATO_ADDRESS: address, SFUMATO_KEY: key, SFUMATO_OTHER: other } = process.env;
const { SFUMATO_STEWARD: steward, SFUMATO_PEOPLE: people, SFUMATO_HOSPITAL: hospital } = process.env;
const client = new SfumatoClient(address, key);
const refusal = async (asked) => {
  try {
    await asked();
  } catch (error) {
    if (error instanceof ServerError) return { message: error.message, charged: error.charged };
    throw error;
  }
  return null;
};
const sql = "SELECT sex, COUNT(*) FROM people GROUP BY sex";
const reply = await client.ask("people", sql, { epsilon: "1", confidence: "0.9", whole: true });
const again = await client.ask("people", sql, { epsilon: "1", confidence: "0.9", whole: true });
const found = {
  datasets: (await client.datasets()).map((each) => each.name),
  confidence: reply.confidence,
  groups: reply.rows.map((row) => row.key[0]),
  whole: reply.rows.every((row) => Number.isInteger(row.values[0].estimate)),
  same: JSON.stringify(again.rows) === JSON.stringify(reply.rows),
  cost: again.cost,
  epsilon: Number(await client.cost("people", sql, "10")),
  half: (await client.accuracy("people", sql, { epsilon: "1" }))[0].half_width,
  query: (await client.query("people", { aggregates: [{ aggregate: "count" }] }, { epsilon: "1" })).rows.length,
  refused: await refusal(() => client.ask("people", "SELECT nothing", { epsilon: "1" })),
  unknown: await refusal(() => new SfumatoClient(address, "wrong").datasets()),
  foreign: await refusal(() => new SfumatoClient(other, key).datasets()),
  rows: await refusal(() => new SfumatoClient(other, key).rows("x")),
  silent: await refusal(() => new SfumatoClient("http://127.0.0.1:9", key).datasets()),
};

// What stewards do: a schema is drafted, completed, accepted and registered; months, approvals, a new name and an end.
const owner = new SfumatoClient(address, steward);
const finished = async (by, job) => {
  for (;;) {
    const { state, note } = await by.progress(job);
    if (state === "failed") throw new Error(note);
    if (state === "done") return job;
    await new Promise((done) => setTimeout(done, 100));
  }
};
const drafted = await owner.draft({ source: hospital });
drafted.domain.tables.icd.public = true;
const cost = { type: "integer", minimum: 0, maximum: 1000, unknown: "clamp" }; // a draft leaves out a column of unique values
Object.assign(drafted.domain.tables.visits, { rows: 3, attributes: { cost } });
Object.assign(drafted.domain.tables.diagnoses, { rows: 6 });
const accepted = await owner.accept({ domain: drafted.domain, source: hospital, confirm: ["identifiers"] });
await owner.register({ name: "hospital_ts", source: hospital, domain: accepted.domain, limit: "1e6", second_budget: true });
const tables = await client.tables(
  await finished(client, await client.release("hospital_ts", { method: "related", children: [{ table: "visits" }], loss: { epsilon: "1" } })),
);
const single = await owner.accept({ domain: (await owner.draft({ source: people })).domain, confirm: ["bounds", "bins"] });
await owner.register({ name: "months_ts", source: people, domain: single.domain, limit: "0.5 a month for 4 months", second_budget: true });
await owner.setTerms("months_ts", { approval_above: "0.1" });
await owner.cap("months_ts", "ana", { epsilon: "1" });
const dear = () => client.ask("months_ts", "SELECT COUNT(*) FROM people", { epsilon: "0.25" });
const needed = await refusal(dear);
const [waiting] = await client.approvals();
await owner.approve(waiting.id);
const answered = await dear();
const histogram = await finished(client, await client.release("months_ts", { method: "histogram", attributes: ["sex"], loss: { epsilon: "0.1" } }));
await refusal(() => client.ask("months_ts", "SELECT AVG(age) FROM people", { epsilon: "0.12" }));
const [other_one] = await owner.approvals();
found.steward = {
  accepted: accepted.domain.accepted.by,
  zip: tables[0] === 0x50 && tables[1] === 0x4b,
  terms: (await owner.terms("months_ts")).approval_above,
  months: (await client.dataset("months_ts")).by_month.months,
  needed: needed.message,
  cost: answered.cost,
  parquet: new TextDecoder().decode((await client.parquet(histogram)).slice(0, 4)),
  closed: (await owner.refuseApproval(other_one.id)).closed === other_one.id,
  left: (await owner.approvals()).length,
  journal: (await client.journal("months_ts")).length,
  renamed: (await owner.rename("months_ts", "quarters_ts")).name,
  retired: (await owner.retire("quarters_ts")).retired,
  gone: (await owner.retire("hospital_ts")).retired,
  refused: await refusal(() => client.approve("x")),
};
console.log(JSON.stringify(found));
