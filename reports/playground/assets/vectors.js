// Two vectors on every tensor core: what `fp16lab mma --explain` says, row by row of the table of tensor cores.
const operandKinds = {f16: 'FP16', bf16: 'BF16', tf32: 'TF32', e4m3: 'E4M3', e5m2: 'E5M2', 'e4m3.e5m2': 'E4M3 × E5M2', 'e5m2.e4m3': 'E5M2 × E4M3'};
const drawnPowers = {f16: [-24, 15], bf16: [-30, 30], tf32: [-30, 30], e4m3: [-9, 8], e5m2: [-16, 15]};
const titleOf = {f32: 'FP32', f16: 'FP16'};
const formatsOf = kind => kind.includes('.') ? kind.split('.') : [kind, kind];
let rows = [], typed = {a: [], b: []};

const tokens = text => text.split(/[\s,;]+/).filter(token => token !== '');

const vectorExamples = [
  ['small products beside 1', {a: initial.a, b: initial.b, c: '0', operands: 'f16', accumulator: 'f32'}],
  ['cancellation', {a: '-8192 -0.5 -0.25 -0.125', b: '1024 1 1 1', c: '2^23', operands: 'f16', accumulator: 'f32'}],
  ['a block ends', {a: '64 2^-6 0 0 -64 0 0 0', b: '64 2^-6 0 0 64 0 0 0', c: '0', operands: 'f16', accumulator: 'f32'}],
  ['FP16 accumulator', {a: Array(16).fill('0.25').join(' '), b: Array(16).fill('1').join(' '), c: '2048', operands: 'f16', accumulator: 'f16'}],
  ['FP8 with 14 bits', {a: '16 2^-3 1.5 2^-2 -16 1.25', b: '16 2^-3 1.5 2^-4 15 1.75', c: '1', operands: 'e4m3', accumulator: 'f32'}],
];

function randomVectors() {
  const [low, high] = drawnPowers[formatsOf(state.operands)[0]], count = Math.max(1, tokens(state.a).length);
  const number = () => ((Math.random() < .5 ? -1 : 1) * (1 + Math.floor(Math.random() * 8) / 8) * 2 ** Math.round((low + high) / 2 + (Math.random() - .5) * (high - low) * .6)).toString();
  return {a: Array.from({length: count}, number).join(' '), b: Array.from({length: count}, number).join(' ')};
}

// The words of a vector; an error of the library explains what was wrong.
function wordsOf(name, format) {
  const answer = ask('words', format, state[name]);
  if (answer.error) throw new Error(`${name}: ${answer.error}`);
  return answer;
}

function answersOf(kind, accumulator, a, b, c) {
  const [first, second] = formatsOf(kind);
  return rows.filter(row => row.accumulator === accumulator && row.operands.includes(first) && row.operands.includes(second))
    .map(row => ({row, dot: ask('dot', row.name, first, second, accumulator, a, b, c)}));
}

const counted = (n, what) => `${n} ${what}${n === 1 ? '' : 's'}`;
function bitsDropped(dot) {
  let terms = 0, bits = 0;
  for (const step of dot.steps)
    for (const term of step.terms)
      if (term.aligned?.includes('|')) { ++terms; bits += term.aligned.split('|')[1].replace('..', '').length; }
  return {terms, bits};
}
const evidenceWords = {hardware: 'equals captures of the hardware', hardware_test: 'asserted on the hardware', model: 'a published model, not checked on hardware'};

function showResults(answers) {
  const words = [...new Set(answers.map(({dot}) => dot.d.bits))], letter = dot => String.fromCharCode(65 + words.indexOf(dot.d.bits));
  const head = ['', 'block', 'bits kept', 'd', 'value', 'error', 'dropped', 'known from'].map((name, i) => element('th', {class: i === 0 || i > 5 ? 'text' : '', scope: 'col'}, name));
  head[0].append('tensor core');
  const body = answers.map(({row, dot}) => {
    const {terms, bits} = bitsDropped(dot), chosen = row.name === state.row;
    return element('tr', {class: chosen ? 'chosen' : '', 'data-row': row.name, 'data-word': dot.d.bits}, [
      element('th', {class: 'text', scope: 'row'}, element('button', {type: 'button', textContent: row.name, title: row.hardware, ariaPressed: String(chosen), onclick: () => { state.row = row.name; showVectors(); remember(); at('results').querySelector('tr.chosen button').focus(); }})),
      element('td', {}, row.stages.includes(';') ? '2 × 16' : String(row.block_size)), element('td', {}, String(row.fraction_bits)),
      element('td', {class: 'word'}, [element('span', {class: 'group', title: 'Rows with the same letter give the same bits.'}, letter(dot)), ' ' + dot.d.bits]),
      element('td', {title: dot.d.value}, shortValue(dot.d.value)),
      element('td', {}, dot.error_ulp === null ? '–' : ulps(dot.error_ulp)),
      element('td', {class: 'text'}, terms === 0 ? 'nothing' : element('span', {class: 'dropped'}, `${counted(bits, 'bit')} of ${counted(terms, 'term')}`)),
      element('td', {class: 'text', title: row.source}, evidenceWords[row.evidence])]);
  });
  at('results').replaceChildren(element('caption', {}, 'Rows with the same letter give the same bits. Choose a row to see its steps below.'),
    element('thead', {}, element('tr', {}, head)), element('tbody', {}, body));
  const absent = [...new Set(rows.map(row => row.name))].filter(name => !answers.some(({row}) => row.name === name));
  const kinds = `${operandKinds[state.operands]} with ${titleOf[state.accumulator]}`;
  const exact = answers[0].dot.exact, nearest = answers[0].dot.nearest;
  at('agreement').textContent = `${words.length === 1 ? 'All of them agree' : `${words.length} different results`}. The exact sum is ${exact.decimal ? shortValue(exact.decimal) : exact}; rounded once it would be ${nearest.bits} = ${shortValue(nearest.value)}.` +
    (absent.length > 0 ? ` No ${kinds}: ${absent.join(', ')}.` : '');
}
const shortValue = text => Number.isFinite(Number(text)) && text.length > 14 ? Number(text).toPrecision(10).replace(/\.?0+($|e)/, '$1') : text;

function alignedBits(text) {
  const [kept, dropped] = text.split('|');
  return dropped === undefined ? [kept] : [kept, element('span', {class: 'dropped'}, dropped)];
}
const binary = x => typeof x === 'string' ? x : x.significand === '0' ? '0' : Math.abs(x.exponent) < 20 && x.decimal.length < 12 ? x.decimal : `${x.significand === '1' ? '' : x.significand === '-1' ? '-' : x.significand + ' · '}${power(x.exponent)}`;

function showStep(step, number, row, total) {
  const fused = step.step === 'fused_block', aligned = step.max_exponent !== null;
  const lines = step.terms.map(term => element('tr', {}, [element('th', {class: 'text', scope: 'row'}, term.term), element('td', {class: aligned ? 'worth' : ''}, binary(term.exact)),
    ...(!aligned ? [] : [element('td', {class: 'aligned'}, term.aligned ? alignedBits(term.aligned) : '0'), element('td', {}, term.dropped.significand === '0' ? '' : element('span', {class: 'dropped'}, binary(term.dropped)))])]));
  const names = aligned ? ['term', 'exact', `aligned, × ${power(step.max_exponent)}`, 'dropped'] : ['term', 'exact'];
  const rounded = step.rounding && step.rounding.significand !== '0' ? `, off by ${binary(step.rounding)}` : '';
  return element('div', {class: 'step'}, [
    element('p', {}, [element('b', {}, `Step ${number} of ${total}`), fused ? aligned ? `: a block, aligned to ${power(step.max_exponent)}; one unit is ${power(step.unit_exponent)}.` : ': a block of special values.' : ': an ordinary addition.']),
    element('div', {class: 'scroll', tabIndex: 0, role: 'region', ariaLabel: `Terms of step ${number}`}, element('table', {}, [
      element('thead', {}, element('tr', {}, names.map((name, i) => element('th', {class: i === 0 || i === 2 ? 'text' : aligned && i === 1 ? 'worth' : '', scope: 'col'}, name)))), element('tbody', {}, lines)])),
    element('p', {}, `Sum ${binary(step.sum)}, rounded ${fused && row.output !== 'fp16_nearest_even' ? row.output === 'fp32_toward_zero' ? 'toward zero' : 'toward zero to 14 bits' : 'to nearest even'}: ${step.result.bits} = ${shortValue(step.result.value)}${rounded}.`)]);
}

function showVectors() {
  for (const name of ['a', 'b', 'c', 'operands', 'accumulator']) if (at(name).value !== state[name]) at(name).value = state[name];
  let answers = [];
  try {
    const [first, second] = formatsOf(state.operands);
    if (!(state.operands in operandKinds)) throw new Error(`operands '${state.operands}': known are ${Object.keys(operandKinds).join(', ')}`);
    const a = wordsOf('a', first), b = wordsOf('b', second), c = wordsOf('c', state.accumulator);
    typed = {a: a.values, b: b.values};
    if (a.words.length !== b.words.length) throw new Error(`a has ${a.words.length} elements and b has ${b.words.length}; both need as many.`);
    if (a.words.length > 64) throw new Error(`a has ${a.words.length} elements; this page takes up to 64 (fp16lab mma takes any number).`);
    if (a.words.length === 0) throw new Error('a and b are empty; one element is the least.');
    if (c.words.length !== 1) throw new Error('c is one number.');
    answers = answersOf(state.operands, state.accumulator, a.words.join(' '), b.words.join(' '), c.words[0]);
    if (answers.length === 0) throw new Error(`No tensor core of the table multiplies ${operandKinds[state.operands]} with ${titleOf[state.accumulator] ?? state.accumulator} accumulators.`);
    const wrong = answers.find(({dot}) => dot.error && !dot.steps);
    if (wrong) throw new Error(wrong.dot.error);
  } catch (error) {
    say('vector-error', error.message);
    at('vector-answer').hidden = true;
    ['a', 'b'].forEach(drawPad);
    return;
  }
  say('vector-error', null);
  at('vector-answer').hidden = false;
  at('length').value = typed.a.length;
  ['a', 'b'].forEach(drawPad);
  if (!answers.some(({row}) => row.name === state.row)) state.row = answers[0].row.name;
  showResults(answers);
  const {row, dot} = answers.find(({row}) => row.name === state.row);
  at('steps-title').textContent = `${row.name}, step by step: ${row.hardware}`;
  at('steps').replaceChildren(...dot.steps.map((step, i) => showStep(step, i + 1, row, dot.steps.length)));
}

function change(values) {
  Object.assign(state, values);
  showVectors();
  remember();
}

function startVectors() {
  rows = ask('rows');
  at('operands').append(...Object.entries(operandKinds).map(([kind, name]) => new Option(name, kind)));
  for (const name of ['a', 'b', 'c', 'operands', 'accumulator']) at(name).addEventListener('input', () => change({[name]: at(name).value}));
  at('length').addEventListener('input', () => {
    const count = Math.round(Number(at('length').value));
    if (!(count >= 1 && count <= 64)) return;
    const resized = name => Array.from({length: count}, (_, i) => tokens(state[name])[i] ?? '0').join(' ');
    change({a: resized('a'), b: resized('b')});
  });
  examples('vector-examples', [...vectorExamples, ['random', null]], values => change(values ?? randomVectors()));
  ['a', 'b'].forEach(startPad);
}
