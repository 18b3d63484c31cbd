// What a program of a stranger does, against the server that the environment names; prints what it found as JSON.
import { ServerError, SfumatoClient } from "./client.js";

const { SFUMATO_ADDRESS: address, SFUMATO_KEY: key, SFUMATO_OTHER: other } = process.env;
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
console.log(JSON.stringify(found));
