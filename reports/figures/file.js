// draw.js: node draw.js [--width 3.3in | 84mm | 8.4cm | 240pt | 500] [--no-title] STEM.figure.json ...   draws STEM.svg beside each
//          node draw.js [...] --report report.json   describes a report's figures and draws them
// A width has one of these units, or is in pixels of 1/96 inch; without one, as the figure was drawn before. Colours of curves are in the
// .figure.json, those of text, axes and zones below. rsvg-convert -f pdf -o STEM.pdf STEM.svg makes a PDF.

const colors = {paper: '#ffffff', ink: '#1d2126', soft: '#56606b', line: '#d9dee4', panel: '#f6f7f9', lost: '#d55e00', subnormal: '#56b4e9', normal: '#0072b2', overflow: '#cc79a7'};
const lit = text => text.replace(/var\(--(\w+)\)/g, (all, name) => colors[name] ?? all);
// Styles choose between a light and a dark page; files are light.
const light = style => style.replace(/light-dark\(([^,]+), [^)]+\)/g, '$1');

// Text as XML holds it: names of tensors and runs come from anywhere, so what moves a terminal or turns lines round is replaced.
const marks = {'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', '\n': ' ', '\t': ' '};
const escaped = text => [...String(text)].map(c => marks[c] ?? (/[\p{Cc}\p{Cs}\p{Bidi_Control}\u2028\u2029\ufffe\uffff]/u.test(c) ? '\ufffd' : c)).join('');

// As much of a document as pictures need.
class FileNode {
  constructor(name) { Object.assign(this, {name, attributes: new Map(), children: []}); }
  setAttribute(key, value) { this.attributes.set(key, String(value)); }
  getAttribute(key) { return this.attributes.get(key) ?? null; }
  append(...nodes) { this.children.push(...nodes); }
  addEventListener() {}
  toString() {
    const attributes = [...this.attributes].filter(([key]) => key !== 'tabindex').map(([key, value]) => ` ${key}="${escaped(key === 'style' ? light(value) : key === 'fill' || key === 'stroke' ? lit(value) : value)}"`).join('');
    return `<${this.name}${attributes}>${this.children.map(child => child instanceof FileNode ? child.toString() : escaped(child)).join('')}</${this.name}>`;
  }
}
globalThis.document = {createElementNS: (space, name) => new FileNode(name)};
const isDark = () => false;

function fileText(figure) {
  const drawn = drawFigure(figure, {title: !figure.untitled}), style = new FileNode('style');
  drawn.setAttribute('xmlns', NS);
  style.append(lit(styleSheet));
  drawn.children.splice(2, 0, style);
  return drawn.toString() + '\n';
}

// Which widths make sense is the program's to say (require_width).
const units = {in: 96, mm: 96 / 25.4, cm: 96 / 2.54, pt: 96 / 72};
const pixels = text => Math.round(parseFloat(text) * (units[text.slice(-2)] ?? 1));

const usage = 'node draw.js [--width 3.3in | 84mm | 8.4cm | 240pt | 500] [--no-title] STEM.figure.json ...\n  draws STEM.svg beside each; rsvg-convert -f pdf -o STEM.pdf STEM.svg makes a PDF of it';
function drawFiles(words, fs) {
  const chosen = {}, files = [];
  let report = null;
  for (let i = 0; i < words.length; ++i)
    if (words[i] === '--width') chosen.width = pixels(words[++i] ?? '');
    else if (words[i] === '--no-title') chosen.untitled = true;
    else if (words[i] === '--report') report = words[++i];
    else if (words[i].startsWith('-')) throw new Error(`${words[i]}: unknown option\n${usage}`);
    else files.push(words[i]);
  if (chosen.width !== undefined && !(chosen.width > 0)) throw new Error(`--width has no width\n${usage}`);
  if (report === null && files.length === 0) throw new Error(`no figure was given\n${usage}`);
  const read = file => JSON.parse(fs.readFileSync(file, 'utf8'));
  const figures = report === null ? files.map(file => [file, read(file)]) : figuresOf(read(report)).map(figure => [`${figure.stem}.figure.json`, figure]);
  for (const [file, given] of figures) {
    const figure = {...given, ...chosen};
    if (report !== null) fs.writeFileSync(file, JSON.stringify(figure).replace(/[^ -~]/g, c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0')) + '\n');
    fs.writeFileSync(file.replace(/(\.figure)?\.json$/, '') + '.svg', fileText(figure));
  }
}
function run(words, fs) {
  try {
    drawFiles(words, fs);
  } catch (error) {
    console.error(`draw.js: ${error.message}`);
    process.exitCode = 1;
  }
}
