// fp16lab's library as WebAssembly (playground.cpp), and what the sections share.
const at = id => document.getElementById(id);
function element(name, attributes = {}, children = []) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) key === 'class' ? node.className = value : key in node && key !== 'list' ? node[key] = value : node.setAttribute(key, value);
  node.append(...[].concat(children));
  return node;
}
function svg(name, attributes, children = []) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...[].concat(children));
  return node;
}
const superscript = {'-': '⁻', 0: '⁰', 1: '¹', 2: '²', 3: '³', 4: '⁴', 5: '⁵', 6: '⁶', 7: '⁷', 8: '⁸', 9: '⁹'};
const power = k => '2' + String(k).replace(/./g, c => superscript[c]);

// The few calls of WASI that the C++ library's start makes: there is no environment and nothing to write to.
async function loadLibrary() {
  const bytes = Uint8Array.from(atob(at('library').textContent.trim()), c => c.charCodeAt(0));
  let module, exports;
  try {
    module = new WebAssembly.Module(bytes);  // at once, where the browser lets a page
  } catch {
    module = await WebAssembly.compile(bytes);
  }
  const calls = {
    environ_sizes_get(count, size) {
      const memory = new DataView(exports.memory.buffer);
      memory.setUint32(count, 0, true);
      memory.setUint32(size, 0, true);
      return 0;
    },
    environ_get: () => 0,
    emscripten_notify_memory_growth: () => {},
  };
  const imports = {};
  for (const {module: from, name} of WebAssembly.Module.imports(module))
    (imports[from] ??= {})[name] = calls[name] ?? (() => { throw new Error(`the library called ${name}`); });
  exports = new WebAssembly.Instance(module, imports).exports;
  exports._initialize();
  const encoder = new TextEncoder(), decoder = new TextDecoder();
  // Texts go as bytes with a zero after them; the answer is JSON, as text.
  return (question, ...asked) => {
    const places = [];
    const words = asked.map(argument => {
      if (typeof argument === 'number') return argument;
      const text = encoder.encode(argument), place = exports.malloc(text.length + 1), memory = new Uint8Array(exports.memory.buffer);
      memory.set(text, place);
      memory[place + text.length] = 0;
      places.push(place);
      return place;
    });
    const begin = exports['fp16lab_playground_' + question](...words), memory = new Uint8Array(exports.memory.buffer);
    places.forEach(place => exports.free(place));
    return decoder.decode(memory.subarray(begin, memory.indexOf(0, begin)));
  };
}
let askText = null;
const ask = (...question) => JSON.parse(askText(...question));

function say(id, error) {
  at(id).hidden = !error;
  if (at(id).textContent !== (error ?? '')) at(id).textContent = error ?? '';
}
function examples(id, list, choose) {
  at(id).append(...list.map(([name, ...choice]) => element('button', {type: 'button', textContent: name, onclick: () => choose(...choice)})));
}

// The address holds the state, so that a link shares a case.
const initial = {
  value: '0.1', own: '6,10', a: '1 2^-12 2^-12 2^-12 2^-12 2^-12 2^-12 2^-12 2^-12 2^-12 2^-12 2^-12 2^-12 2^-12 2^-12 2^-12',
  b: '1 2^-11 2^-12 2^-12 2^-13 2^-13 2^-13 2^-13 2^-13 2^-13 2^-13 2^-13 2^-13 2^-13 2^-13 2^-13', c: '0',
  operands: 'f16', accumulator: 'f32', row: 'volta', tensor: '', step: '', format: 'f16', scale: '0',
};
const state = {...initial};
function readAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(state)) state[key] = wanted.get(key) ?? initial[key];
}
function remember() {
  const changed = Object.keys(state).filter(key => state[key] !== initial[key]);
  const hash = new URLSearchParams(changed.map(key => [key, state[key]])).toString();
  history.replaceState(null, '', '#' + hash);
}
