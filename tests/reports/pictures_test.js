// node pictures_test.js REPORTS_FOLDER: what pictures are laid out by, without a browser.
'use strict';
const assert = require('assert'), fs = require('fs'), path = require('path'), vm = require('vm');
const scripts = ['file', 'text', 'zones', 'shapes', 'plot', 'histogram', 'heatmap', 'bars', 'traces', 'describe', 'figure'];
const source = scripts.map(name => fs.readFileSync(path.join(process.argv[2], 'figures', `${name}.js`), 'utf8')).join('');
const names = ['wrapped', 'shortened', 'textWidth', 'roundTicks', 'logarithmicTicks', 'groupsOf', 'drawnAsOne', 'spread', 'endLabels', 'ended', 'drawPlot', 'drawFigure', 'fitted', 'FileNode', 'pixels', 'drawFiles', 'figuresOf', 'power', 'castRate'];
const pictures = vm.runInThisContext(`(() => { const styleSheet = ''; ${source}; return {${names.join(', ')}}; })()`);
const {wrapped, shortened, textWidth, roundTicks, logarithmicTicks, groupsOf, drawnAsOne, spread, endLabels, ended, drawPlot, drawFigure, fitted, FileNode, pixels, drawFiles, figuresOf, castRate} = pictures;

const texts = node => node instanceof FileNode ? (node.name === 'text' ? [node.children.join('')] : node.children.flatMap(texts)) : [];
const tests = {
  'lines break at spaces and keep every word'() {
    assert.deepStrictEqual(wrapped('', 100), ['']);
    const text = 'Training loss, a workload of many words: mean over seeds, band from lowest to highest seed';
    for (const width of [120, 200, 400]) {
      const lines = wrapped(text, width, 14);
      for (const line of lines) assert.ok(textWidth(line, 14) <= width, line);
      assert.strictEqual(lines.join(' '), text);
    }
    const long = wrapped('x '.repeat(3) + 'w'.repeat(200), 100);
    assert.ok(long.every(line => textWidth(line) <= 100) && long.join('').length === 205, long);
  },
  'names are shortened from the front and never inside a character'() {
    assert.strictEqual(shortened('fc1.weight', 500), 'fc1.weight');
    const end = shortened('encoder.layers.11.self_attention.weight', 120);
    assert.ok(end.startsWith('…') && end.endsWith('.weight') && textWidth(end) <= 120, end);
    assert.strictEqual(shortened('a😀', 1), '…😀');
  },
  'ticks are round and inside'() {
    assert.deepStrictEqual(roundTicks(0, 10, 5), [0, 2, 4, 6, 8, 10]);
    assert.deepStrictEqual(roundTicks(-.3, .3, 3), [-.2, 0, .2]);
    assert.deepStrictEqual(logarithmicTicks(1, 100), [1, 2, 5, 10, 20, 50, 100]);
    assert.deepStrictEqual(logarithmicTicks(1e-4, 1), [1e-4, 1e-3, .01, .1, 1]);
    for (const [low, high] of [[0, 0], [3, 3], [-2, -2]]) assert.ok(ended({low: undefined}, [low, high], .04).high > low);
    assert.ok(ended({log: true}, [0, 5, 50], .04).low > 0, 'a logarithmic axis has no zero');
  },
  'curves nearer than half a percent are one'() {
    const curve = (label, y) => ({label, points: [[0, 0], [1, y]]}), same = drawnAsOne(100);
    assert.deepStrictEqual(groupsOf([curve('a', 50), curve('b', 50.4), curve('c', 51)], same).map(g => g.map(c => c.label)), [['a', 'b'], ['c']]);
    const labels = endLabels(['a', 'b', 'a much longer name', 'another long name'].map(label => ({...curve(label, 50), color: '#0072B2'})), {low: 0, high: 100});
    assert.deepStrictEqual(labels.map(l => l.lines.map(line => line.text)), [['a', '= b', '= a much longer name', '= another long name']]);
  },
  'labels move apart and stay inside'() {
    const labels = [10, 11, 12, 90, 99].map((want, i) => ({want, tall: 10 + i}));
    spread(labels, 0, 100);
    for (let i = 1; i < labels.length; ++i) assert.ok(labels[i].at - labels[i - 1].at >= labels[i - 1].tall - 1e-9);
    assert.ok(labels[0].at >= 0 && labels.at(-1).at + labels.at(-1).tall <= 100 + 1e-9);
  },
  'a plot names curves at their ends, or below where they have no room'() {
    const series = count => Array.from({length: count}, (_, i) => ({label: `curve ${i}`, color: '#0072B2', points: [[0, 0], [10, i + 1]]}));
    const panel = count => ({series: series(count), x: {title: 'step'}, y: {title: 'loss'}});
    const texts3 = drawPlot(panel(3), 500, 300).children.filter(n => n.name === 'text'), placed = texts3.filter(n => n.children[0].startsWith('curve'));
    assert.strictEqual(placed.length, 3);
    assert.ok(placed.every(n => Number(n.getAttribute('x')) > 400), 'beside the plot');
    const below = drawPlot(panel(20), 500, 300).children.filter(n => n.name === 'text' && n.children[0].startsWith('curve'));
    assert.strictEqual(below.length, 20);
    assert.ok(below.every(n => Number(n.getAttribute('y')) > 150), 'under the plot');
  },
  'a plot without a value is still a plot'() {
    for (const points of [[], [[0, null]], [[3, 4]]])
      assert.ok(!/NaN|Infinity/.test(drawPlot({series: [{label: 'a', color: '#0072B2', points}], x: {title: 'step'}, y: {title: 'loss', log: true}}, 400, 300).toString()), JSON.stringify(points));
  },
  'panels go below one another where a column is narrow'() {
    const panel = {kind: 'plot', title: 'p', series: [{label: 'a', color: '#0072B2', points: [[0, 1], [1, 2]]}], x: {title: 'step'}, y: {title: 'loss'}}, figure = {title: 'T', columns: 2, panels: [{...panel, labels: 'none'}, panel]};
    const height = width => Number(drawFigure(figure, {width, title: false}).getAttribute('height'));
    assert.ok(height(317) > 350 && height(1040) < 350);
    assert.strictEqual(texts(drawFigure(figure, {width: 1040})).filter(t => t === 'a').length, 1);
    assert.strictEqual(texts(drawFigure(figure, {width: 317})).filter(t => t === 'a').length, 2, 'every panel says what it shows');
  },
  'keys and colours of curves stand once in a figure'() {
    const series = Array.from({length: 14}, (_, i) => ({label: `curve ${i}`, points: [[0, 0], [10, i + 1]]})), panel = {kind: 'plot', series, x: {title: 'step'}, y: {title: 'loss'}};
    const styles = Object.fromEntries(series.map((s, i) => [s.label, {color: `#0072${10 + i}`}])), drawn = drawFigure({title: 'T', columns: 2, styles, panels: [panel, panel]}, {width: 317});
    for (const {label} of series) assert.strictEqual(texts(drawn).filter(t => t === label).length, 1, label);
    assert.ok(drawn.toString().split('stroke: #007213').length > 3, 'in both panels and below');
  },
  'maps and histograms fit into a column of paper'() {
    const tensors = Array.from({length: 12}, (_, i) => `layer${i}.weight`), of = value => [1, 2, 3].map(() => tensors.map(() => value));
    const maps = drawFigure({title: 'T', panels: Array.from({length: 6}, (_, i) => ({kind: 'heat', title: `run ${i}`, tensors, kinds: tensors.map(() => 'weight'), steps: [1, 2, 3], rates: of(.5), crosses: of(false)}))}, {width: 317});
    assert.strictEqual(texts(maps).filter(t => t.startsWith('layer3.weight')).length, 2, 'names stand once in a row of maps');
    assert.strictEqual(texts(maps).filter(t => t === '100 %').length, 1, 'one row of keys');
    const format = {name: 'FP16', tie: -25, normal: -14, overflow: 65520, reached: true};
    const grid = drawFigure({title: 'T', columns: 3, panels: tensors.map(title => ({kind: 'histogram', title, histogram: [0, 0, 0, -20, [3, 4], 0, 0], ratio: 1, formats: [format], what: 'magnitude'}))}, {width: 317});
    for (const picture of [maps, grid]) assert.ok(Number(picture.getAttribute('height')) < 850, 'a page is 9 inches');
  },
  'a map has a key for tensors of zeros alone, and for what nothing rounded, where it has them'() {
    const map = rates => drawFigure({title: 'T', panels: [{kind: 'heat', title: 'run', tensors: ['a', 'b'], kinds: ['weight', 'weight'], steps: [1], rates: [rates], crosses: [[false, false]]}]});
    for (const [rates, keys] of [[[.5, 0], []], [['zeros', .5], ['only zeros']], [[null, 'zeros'], ['only zeros', 'not rounded']]])
      assert.deepStrictEqual(texts(map(rates)).filter(t => ['only zeros', 'not rounded'].includes(t)), keys);
    assert.ok(map(['zeros', .5]).toString().includes('a, step 1: all values are zero'));
    assert.deepStrictEqual([castRate(null), castRate([0, 0, 0]), castRate([4, 1, 0])], [null, 'zeros', .25]);
  },
  'histograms of a report show the worst tensors, and say how many they leave out'() {
    // Tensor i loses i of 20 values; "late" has a NaN.
    const format = {name: 'FP16', tie: -25, normal: -14, overflow: 65520, reached: true, rounds: true}, tensors = [...Array.from({length: 8}, (_, i) => `t${i}`), 'late'];
    const histograms = [tensors.map((name, i) => name === 'late' ? [0, 0, 1, 0, [20], 0, 0] : [5, 0, 0, -30, [i, ...Array(29).fill(0), 20 - i], 0, 0])];
    const run = {workload: 'net', label: 'FP16', rounded: true, fp32: false, tensors, kinds: tensors.map(() => 'weight'), formats: tensors.map(() => format), steps: [7], scales: [1], histograms, casts: [tensors.map(() => [20, 1, 0])],
                 what_if: {lost: tensors.map(() => [0, 0]), merged_lost: [0, 0], merged_overflow: [0, 0]}};
    const curve = {step: [], mean: [], low: [], high: []}, figures = figuresOf({replays: [], scales: [0, 1], runs: [run], workloads: [{name: 'net', slug: 'net', configurations: [{label: 'FP16', slug: 'fp16', style: {color: '#0072B2'}, curve}]}]});
    const histogram = figures.find(f => f.stem === 'histogram-net-fp16');
    assert.deepStrictEqual(histogram.panels.map(p => p.title), ['late', 't7', 't6', 't5', 't4', 't3']);
    assert.ok(histogram.caption.startsWith('3 of 9 tensors are left out: these are the worst, by the share of values that are Inf or NaN,'), histogram.caption);
    assert.ok(Number(drawFigure(histogram, {width: 317}).getAttribute('height')) < 490, 'half a page of paper');
    for (const [stem, said] of [['histogram-net-fp16', 'net, FP16, step 7, loss scale 2⁰'], ['underflow-against-scale-net', 'net, gradients of FP16']])
      for (const title of [false, true]) assert.strictEqual(texts(drawFigure(figures.find(f => f.stem === stem), {title})).includes(said), !title, 'a picture without its title says which run it shows');
  },
  'policies of a replay stand in one row each, in a column of paper too'() {
    const bounds = Array.from({length: 36}, (_, i) => ({label: `policy ${i}`, skips: [0, 1], lost: [0, 1], angle: [0, .1]}));
    const league = figuresOf({workloads: [], runs: [], scales: [], replays: [{run: 'a', slug: 'a', traces: {panels: []}, section: {bounds}}]})[1];
    for (const width of [1040, 317]) assert.strictEqual(texts(drawFigure(league, {width})).filter(t => t === 'policy 7').length, 1);
    assert.ok(Number(drawFigure(league, {width: 317}).getAttribute('height')) < 490);
  },
  'neighbouring ticks differ, however near to one another values are'() {
    const ticks = texts(drawPlot({kind: 'plot', series: [{label: 'a', points: [[0, 2.302585], [10, 2.302586]]}], x: {}, y: {}}, 500, 300)).filter(t => t.startsWith('2.30'));
    assert.ok(ticks.length > 1 && new Set(ticks).size === ticks.length, ticks);
  },
  'a loss that needs no second look has one panel, and the margin has its name'() {
    const steps = Array.from({length: 30}, (_, i) => i + 1);
    const configuration = (label, far, outcome) => {
      const mean = steps.map(step => 1 / step + far);
      return {label, slug: label, style: {color: '#0072B2'}, curve: {step: steps, mean, low: mean, high: mean}, outcome};
    };
    const figures = far => figuresOf({runs: [], replays: [], scales: [-10, 24], workloads: [{name: 'net', slug: 'net', metric: 'test loss', unit: '%', margin: 1, band: null,
      configurations: [{...configuration('FP32', 0), fp32: true, reference: true}, configuration('FP16', far, {values: [far, 3 * far], mean: 2 * far, interval: [far, 3 * far], diverged: 1, of: 3, against: true})]}]});
    assert.strictEqual(figures(0).find(f => f.stem === 'loss-net').panels.length, 1);
    const [loss, quality] = figures(.2);
    assert.strictEqual(loss.panels.length, 2);
    assert.deepStrictEqual(Object.keys(loss.styles), ['FP32', 'FP16']);
    assert.ok(texts(drawFigure(quality)).includes('margin ±1 %') && texts(drawFigure(quality)).includes('FP16: 1 of 3 diverged'), texts(drawFigure(quality)));
  },
  'what operands lost to a recipe is three panels'() {
    const curve = {step: [], mean: [], low: [], high: []}, of = (label, zeroed, headroom) => ({label, zeroed, saturated: zeroed.map(() => zeroed[0] && 0), headroom}), style = {color: '#0072B2'};
    const blocks = {step: [1, 10, 20], operands: [of('x, forward', [1, 2, 3], [.5, .6, .7]), of('weight, forward', [5, 5, 5], [0, 0, null]), of('gradient, dx', [null, null, null], [null, null, null])]};
    const figures = figuresOf({replays: [], scales: [0, 1], runs: [], workloads: [{name: 'net', slug: 'net', configurations: [{label: 'BF16', slug: 'bf16', style, curve}, {label: 'BF16 nvfp4', slug: 'bf16-nvfp4', style, curve, blocks}]}]}).filter(f => f.stem.startsWith('blocks-'));
    assert.deepStrictEqual(figures.map(f => f.stem), ['blocks-net-bf16-nvfp4']);
    assert.deepStrictEqual(figures[0].panels.map(p => [p.y.title, p.series.map(s => s.label)]), ['values made zero (%)', 'values saturated (%)', 'headroom (binades)'].map(title => [title, ['x, forward', 'weight, forward']]));
    assert.deepStrictEqual(figures[0].panels[2].series[1].points, [[1, 0], [10, 0]]);
    assert.ok(figures[0].caption.includes('These coincide: x, forward = weight, forward.') && texts(drawFigure(figures[0])).includes('headroom (binades)'), figures[0].caption);
  },
  'a mismatch is a row for each cause, and rings where it has been left out'() {
    const curve = {step: [], mean: [], low: [], high: []}, style = {color: '#0072B2'}, mismatch = {targets: 2000, batches: 10, b: [.03, .02, .04], twin: [0, null, null],
      causes: [{name: 'amp.dtype=bf16', alone: [.03, .02, .04], without: [.001, -.001, .003]}, {name: 'amp.excluded=fc2', alone: [0, null, null], without: [.03, null, null]}], operations: [{name: 'softmax', alone: [.002, null, null]}, {name: 'exp', alone: [null, null, null]}]};
    const figures = figuresOf({replays: [], scales: [0, 1], runs: [], workloads: [{name: 'net', slug: 'net', configurations: [{label: 'FP16', slug: 'fp16', style, curve, mismatch}]}]}).filter(f => f.stem.startsWith('mismatch-'));
    assert.deepStrictEqual(figures.map(f => [f.stem, f.panels.length]), [['mismatch-net-fp16', 1]]);
    const [{series: [alone, without], y, x}] = figures[0].panels;
    assert.deepStrictEqual(y.names, ['both engines: 0.030', 'amp.dtype=bf16: 0.030', 'amp.excluded=fc2: 0', 'only softmax: 0.0020', 'only exp: not finite', 'one-ulp twin: 0']);
    assert.deepStrictEqual([alone.points.length, without.points, without.segments], [5, [[.001, 2], [.03, 3]], [[-.001, 2, .003, 2, 1.6]]]);
    assert.ok(x.low < -.001 && x.high > .04 && texts(drawFigure(figures[0])).includes('amp.dtype=bf16: 0.030'));
  },
  'histograms of one figure share their ends'() {
    const format = {name: 'FP16', tie: -25, normal: -14, overflow: 65520, reached: true}, panel = first => ({kind: 'histogram', title: 't', histogram: [1, 0, 2, first, [3], 0, 0], ratio: 1, formats: [format], what: 'magnitude'});
    const [a, b] = fitted([panel(-45), panel(10)]);
    assert.deepStrictEqual([a.low, a.high], [b.low, b.high]);
    assert.ok(a.low <= -45 && a.high >= 16);
    assert.strictEqual(a.aside, '2 NaN, exact zeros 17 %');
  },
  'text becomes XML'() {
    const node = new FileNode('text');
    node.setAttribute('aria-label', '"<&var(--ink)');
    node.append('a<b>&"\u0007\u202e\ud800\n');
    assert.strictEqual(node.toString(), '<text aria-label="&quot;&lt;&amp;var(--ink)">a&lt;b&gt;&amp;&quot;\ufffd\ufffd\ufffd </text>');
  },
  'widths have a unit of paper, or are pixels'() {
    for (const text of ['3.3in', '83.82mm', '8.382cm', '237.6pt', '317']) assert.strictEqual(pixels(text), 317, text);
    assert.strictEqual(pixels('500'), 500);
    for (const text of ['x', '', '-3in', undefined]) assert.throws(() => drawFiles(['--width', text, 'one.figure.json']), /--width/);
  }};
let failed = 0;
for (const [name, test] of Object.entries(tests))
  try { test(); } catch (error) { ++failed; console.error(`FAILED: ${name}\n${error.stack}`); }
console.log(`${Object.keys(tests).length - failed} of ${Object.keys(tests).length} hold`);
process.exitCode = failed === 0 ? 0 : 1;
