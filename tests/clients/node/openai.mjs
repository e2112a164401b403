// The official SDK for Node.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

import { serve } from "./acts.mjs";

const messages = [{ role: "user", content: "Say hello." }];
const place = z.object({ city: z.string(), count: z.number().int() });
const lookUp = {
  type: "function",
  function: {
    name: "look_up",
    parameters: { type: "object", properties: { query: { type: "string" } } },
  },
};

function client({ base_url, secret, timeout_ms = 20_000, retries = 2 }) {
  return new OpenAI({ baseURL: base_url, apiKey: secret, timeout: timeout_ms, maxRetries: retries });
}

function told(completion) {
  const [choice] = completion.choices;
  return {
    text: choice.message.content,
    finish: choice.finish_reason,
    tokens: [completion.usage?.prompt_tokens, completion.usage?.completion_tokens],
    calls: (choice.message.tool_calls ?? []).map(({ function: { name, arguments: text } }) => ({
      name,
      arguments: JSON.parse(text),
    })),
  };
}

const acts = {
  async answer(job) {
    const completion = await client(job).chat.completions.create({ model: job.model, messages });
    return told(completion);
  },

  async stream(job) {
    const runner = client(job).chat.completions.stream({
      model: job.model,
      messages,
      stream_options: { include_usage: true },
    });
    let pieces = 0;
    for await (const chunk of runner) pieces += chunk.choices[0]?.delta.content ? 1 : 0;
    return { ...told(await runner.finalChatCompletion()), pieces };
  },

  async tools(job) {
    const completion = await client(job).chat.completions.create({
      model: job.model,
      messages,
      tools: [lookUp],
    });
    return told(completion);
  },

  async streamed_tools(job) {
    const runner = client(job).chat.completions.stream({
      model: job.model,
      messages,
      tools: [lookUp],
      stream_options: { include_usage: true },
    });
    return told(await runner.finalChatCompletion());
  },

  async structured(job) {
    const completion = await client(job).chat.completions.parse({
      model: job.model,
      messages,
      response_format: zodResponseFormat(place, "place"),
    });
    return { object: completion.choices[0].message.parsed };
  },

  async leave(job) {
    const stream = await client(job).chat.completions.create({
      model: job.model,
      messages,
      stream: true,
    });
    let pieces = 0;
    for await (const chunk of stream) {
      pieces += chunk.choices[0].delta.content ? 1 : 0;
      if (pieces === job.after) break;
    }
    return { pieces };
  },
};

await serve(acts, ({ status, code }) => ({ status, code }));
