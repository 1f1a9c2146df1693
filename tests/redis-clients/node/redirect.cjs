// Loaded before a suite that connects to Redis's own port: sends it to REDIS_HOST and REDIS_PORT instead, so that the
// suite runs as it was published.
'use strict';

const net = require('node:net');

const REDIS_PORT_DEFAULT = 6379;
const connect = net.Socket.prototype.connect;

net.Socket.prototype.connect = function (...args) {
  // Either the options, or Node's own normalised list of them and a callback.
  const options = Array.isArray(args[0]) ? args[0][0] : args[0];
  if (Number(options?.port) === REDIS_PORT_DEFAULT) {
    options.host = process.env.REDIS_HOST;
    options.port = Number(process.env.REDIS_PORT);
  }
  return connect.apply(this, args);
};
