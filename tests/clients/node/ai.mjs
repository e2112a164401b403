// Vercel's `ai`, with its provider for OpenAI-compatible servers.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, Output, RetryError, streamText, tool } from "ai";
import { z } from "zod";

import { serve } from "./acts.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const prompt = "Say hello.";
const place = z.object({ city: z.string(), count: z.number().int() });
const tools = { look_up: tool({ inputSchema: z.object({ query: z.string() }) }) };

function call({ base_url, secret, model, timeout_ms = 20_000, retries = 2 }) {
  const provider = createOpenAICompatible({
    name: "farthing",
    baseURL: base_url,
    apiKey: secret,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
  return {
    model: provider(model),
    prompt,
    maxRetries: retries,
    abortSignal: AbortSignal.timeout(timeout_ms),
  };
}

function told({ text, finishReason, usage, toolCalls }) {
  return {
    text,
    finish: finishReason,
    tokens: [usage.inputTokens, usage.outputTokens],
    calls: toolCalls.map(({ toolName, input }) => ({ name: toolName, arguments: input })),
  };
}

async function streamed(job, more = {}) {
  const result = streamText({ ...call(job), ...more, onError: () => {} });
  let pieces = 0;
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "abort") throw new DOMException("aborted", "AbortError");
    pieces += part.type === "text-delta" ? 1 : 0;
  }
  const [text, finishReason, usage, toolCalls] = await Promise.all([
    result.text,
    result.finishReason,
    result.usage,
    result.toolCalls,
  ]);
  return { ...told({ text, finishReason, usage, toolCalls }), pieces };
}

const acts = {
  answer: async (job) => told(await generateText(call(job))),
  stream: (job) => streamed(job),
  tools: async (job) => told(await generateText({ ...call(job), tools })),
  streamed_tools: (job) => streamed(job, { tools }),

  async structured(job) {
    const { output } = await generateText({
      ...call(job),
      output: Output.object({ schema: place }),
    });
    return { object: output };
  },

  async leave(job) {
    const left = new AbortController();
    const result = streamText({ ...call(job), abortSignal: left.signal });
    let pieces = 0;
    for await (const part of result.fullStream) {
      if (part.type === "abort") break;
      pieces += part.type === "text-delta" ? 1 : 0;
      if (pieces === job.after) left.abort();
    }
    return { pieces };
  },
};

await serve(acts, (error) => {
  const last = RetryError.isInstance(error) ? error.lastError : error;
  if (!APICallError.isInstance(last)) return { message: last?.message };
  const { error: body } = JSON.parse(last.responseBody ?? "{}");
  return { name: last.constructor.name, status: last.statusCode, code: body?.code };
});
