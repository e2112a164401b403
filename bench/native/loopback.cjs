// Loaded before Portkey, which has no option for it: whatever listens, listens on loopback only.
const { Server } = require("node:net");
const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  if (typeof port !== "number") return listen.call(this, port, ...rest);
  const callbacks = rest.filter((each) => typeof each === "function");
  return listen.call(this, { port, host: "127.0.0.1" }, ...callbacks);
};
