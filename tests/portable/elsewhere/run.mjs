// node run.mjs PROGRAM.wasm DIRECTORY: runs portable_bits, built for WASI, with the directory as its argument.
import fs from 'node:fs';
import { WASI } from 'node:wasi';

const [program, directory] = process.argv.slice(2);
const wasi = new WASI({
  version: 'preview1',
  args: ['portable_bits', '/vectors'],
  preopens: { '/vectors': directory },
  returnOnExit: true,
});
const module = new WebAssembly.Module(fs.readFileSync(program));
process.exitCode = wasi.start(new WebAssembly.Instance(module, { wasi_snapshot_preview1: wasi.wasiImport }));
