// Usage: node speak.mjs SERVER SUBJECT TEXT. Opens a session with a plain-text body, as any NATS client can, and prints
// one line of JSON: the events in order, and what the audio was.
import { connect, createInbox } from "@nats-io/transport-node";

const [server, subject, text] = process.argv.slice(2);
const nc = await connect({ servers: server, timeout: 5000 });
const inbox = createInbox();
const subscription = nc.subscribe(inbox);
const seen = { events: [], bytes: 0, payloads: 0, seqs: [], pts: [], contentType: "", end: null };
nc.publish(subject, text, { reply: inbox });
const limit = setTimeout(() => subscription.unsubscribe(), 60000);

for await (const message of subscription) {
  const header = (name) => message.headers?.get(name) ?? "";
  const event = header("Tts-Event") || `status ${message.headers?.code}`;
  if (seen.events.at(-1) !== event) seen.events.push(event);
  if (event === "audio") {
    seen.payloads += 1;
    seen.bytes += message.data.length;
    seen.seqs.push(Number(header("Tts-Seq")));
    seen.pts.push(Number(header("Tts-Pts")));
    seen.contentType = header("Content-Type");
  } else if (event === "end" || event === "error" || event.startsWith("status")) {
    seen.end = message.data.length ? message.json() : null;
    break;
  }
}
clearTimeout(limit);
await nc.close();
console.log(JSON.stringify(seen));
