// A client program for the tests: each line in is one job, each line out is what came of it.
import { createInterface } from "node:readline";

export async function serve(acts, errorOf) {
  for await (const line of createInterface({ input: process.stdin })) {
    const job = JSON.parse(line);
    let seen;
    try {
      seen = await acts[job.act](job);
    } catch (error) {
      seen = { error: { name: error?.constructor?.name, ...errorOf(error) } };
    }
    process.stdout.write(JSON.stringify(seen) + "\n");
  }
}
