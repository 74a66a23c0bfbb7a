// Numbers as people read them.
const digits = {'-': '⁻', 0: '⁰', 1: '¹', 2: '²', 3: '³', 4: '⁴', 5: '⁵', 6: '⁶', 7: '⁷', 8: '⁸', 9: '⁹'};
const power = k => '2' + String(k).replace(/./g, c => digits[c]);
// A loss scale: 2¹⁶ where it is a power of two, else its decimal.
const scaleText = scale => {
  const k = Math.round(Math.log2(scale));
  return powerOfTwo(k) === scale ? power(k) : String(Number(scale.toPrecision(5)));
};
// Rates as rate_text() of the library writes them: 0 and 100 are exact.
const percent = x => {
  const p = 100 * x;
  return p <= 0 ? '0' : p >= 100 ? '100' : p < .01 ? '< 0.01' : p > 99.9 ? '> 99.9' : p < .995 ? p.toFixed(2) : p < 9.95 || p >= 99 ? p.toFixed(1) : p.toFixed(0);
};
const interval = ([low, high], of) => {
  if (of === 0) return '–';
  const a = percent(low / of), b = percent(high / of);
  if (a === b || (b[0] === '<' && a === '0')) return b + ' %';
  if (a[0] === '>' && b === '100') return a + ' %';
  return (a[0] === '<' ? '0' : a) + '–' + (b[0] === '>' ? '100' : b) + ' %';
};
const plainPercent = x => Number((100 * x).toPrecision(4)) + ' %';  // for axes: round numbers as they are
const exact = n => n.toLocaleString('en');
// Counts as narrow as a table needs: 24,153,952 to 24,263,585 is 24.15–24.26 M.
const short = ([a, b]) => {
  if (b < 1e5) return a === b ? exact(a) : exact(a) + '–' + exact(b);
  const [unit, name] = b < 999500 ? [1e3, ' k'] : [1e6, ' M'];
  const places = unit === 1e3 || b >= 1e9 ? 0 : b >= 1e8 ? 1 : 2, from = (a / unit).toFixed(places), to = (b / unit).toFixed(places);
  return (from === to ? to : (a === 0 ? '0' : from) + '–' + to) + name;
};
const spelled = ([a, b]) => a === b ? exact(a) : exact(a) + ' to ' + exact(b);
const tenPower = k => '10' + String(k).replace(/./g, c => digits[c]);

// Pixels of a text, as drawn in a common sans-serif font at 12 pixels a letter: a layout needs no exact ones.
const slimLetters = /[iljtfrI1.,:;'|!()\[\] ⁰¹²³⁴⁵⁶⁷⁸⁹⁻]/u, broadLetters = /[mwMW@%—×]/u, wideLetters = /[A-Z_&+=<>≤~]/u;
const textWidth = (text, size = 12) => size * [...text].reduce((sum, c) => sum + (slimLetters.test(c) ? .36 : broadLetters.test(c) ? .92 : wideLetters.test(c) ? .72 : .61), 0);
const boldSize = 13.8;  // as which bold letters of 12 pixels count
// A text in lines of at most `width` pixels, broken at spaces, and inside a word only where that fills more than a line.
function wrapped(text, width, size = 12) {
  const lines = [''], fits = line => textWidth(line, size) <= width;
  for (let word of text.split(' ')) {
    if (lines.at(-1) === '' ? fits(word) : fits(`${lines.at(-1)} ${word}`)) {
      lines[lines.length - 1] += (lines.at(-1) === '' ? '' : ' ') + word;
      continue;
    }
    if (lines.at(-1) !== '') lines.push('');
    for (const letter of word) {
      if (lines.at(-1) !== '' && !fits(lines.at(-1) + letter)) lines.push('');
      lines[lines.length - 1] += letter;
    }
  }
  return lines;
}
// As much of the end of a name as `width` pixels hold: tensors differ in their ends.
function shortened(name, width, size = 12) {
  if (textWidth(name, size) <= width) return name;
  const letters = [...name];
  while (letters.length > 1 && textWidth('…' + letters.join(''), size) > width) letters.shift();
  return '…' + letters.join('');
}
