// Makes one call with a JavaScript SDK that is told as JSON, and prints as JSON what came of it.
// node ask.cjs FOLDER '{"sdk", "call", "arguments", "url", "headers"}'; FOLDER is where the SDKs are installed.
const { createRequire } = require("node:module");

const load = createRequire(`${process.argv[2]}/`);
const told = JSON.parse(process.argv[3]);
const packages = { openai: "openai", anthropic: "@anthropic-ai/sdk" };

async function main() {
  const Client = load(packages[told.sdk]).default;
  const client = new Client({ apiKey: "sk-test-key", baseURL: told.url, defaultHeaders: told.headers });
  const names = told.call.split(".");
  const method = names.pop();
  const holder = names.reduce((found, name) => found[name], client);
  try {
    const result = await holder[method](told.arguments);
    const parts = [];
    if (told.arguments.stream) for await (const part of result) parts.push(part);
    return { shown: JSON.stringify(told.arguments.stream ? parts : result) };
  } catch (error) {
    const { name, status, message } = error;
    return { name: name === "Error" ? error.constructor.name : name, status, message, body: error.error };
  }
}

main().then((found) => console.log(JSON.stringify(found)));
