// SPDX-License-Identifier: Apache-2.0
// node perfetto_engine.js DIRECTORY: Perfetto's engine of the UI in DIRECTORY, as a process.
//
// The UI's engine_bundle.js is a worker that a page talks to through a port, in bytes of Perfetto's
// RPC. Here it gets what a worker finds around it, and the port is standard input and output: each
// message has its length (32 bits, little-endian) before it; an empty one ends the answers to one.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const DIRECTORY = process.argv[2];

function write(data) {
  for (let done = 0; done < data.length;) {
    try {
      done += fs.writeSync(1, data, done);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

function send(data) {
  const length = Buffer.alloc(4);
  length.writeUInt32LE(data.length);
  write(length);
  write(data);
}

function read(size) {
  const data = Buffer.alloc(size);
  for (let done = 0; done < size;) {
    let got;
    try {
      got = fs.readSync(0, data, done, size - done, null);
    } catch (error) {
      if (error.code === 'EAGAIN') continue;
      throw error;
    }
    if (got === 0) process.exit(0);
    done += got;
  }
  return data;
}

function file(url) {
  return fs.readFileSync(path.join(DIRECTORY, path.basename(String(url))));
}

class Request {
  open(_method, url) {
    this.url = url;
  }
  send() {
    const data = file(this.url);
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
    this.status = 200;
  }
}

const port = {
  postMessage: send,
  onmessage: null,
  addEventListener(_name, listener) {
    this.onmessage = listener;
  },
  start() {},
};
const said = (...what) => console.error(...what);
const worker = {
  console: {log: said, warn: said, error: said, info: said, debug() {}},
  location: {href: `file://${DIRECTORY}/engine_bundle.js`, origin: 'null', pathname: '/'},
  fetch: async (url) => new Response(file(url), {headers: {'content-type': 'application/wasm'}}),
  XMLHttpRequest: Request,
  WorkerGlobalScope: function () {},
  importScripts() {},
  Response, TextDecoder, TextEncoder, URL, WebAssembly, atob, btoa, clearImmediate, clearInterval,
  clearTimeout, crypto: globalThis.crypto, performance, queueMicrotask, setInterval, setTimeout,
  // Of this realm, as what the engine is given and throws is.
  ArrayBuffer, BigInt, Date, Error, Promise, RangeError, TypeError, Uint8Array,
};
worker.self = worker;
worker.globalThis = worker;
vm.createContext(worker);
vm.runInContext(file('engine_bundle.js').toString(), worker);

(async () => {
  await worker.onmessage({data: port});
  while (!port.onmessage) await new Promise((done) => setTimeout(done, 10));
  for (;;) {
    const request = read(read(4).readUInt32LE());
    try {
      port.onmessage({data: new Uint8Array(request.buffer, request.byteOffset, request.length)});
    } catch (error) {
      console.error(String(error));
      process.exit(3);
    }
    send(new Uint8Array(0));
    await new Promise((done) => setImmediate(done));
  }
})();
