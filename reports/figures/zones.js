// Where the values of a histogram land in a format: the rules of numerics/histogram/zones.hpp, bin by bin, with the same
// answers. A histogram is [zero, infinite, nan, first exponent, counts, smallest, greatest]; counts[i] belongs to the bin
// (2^e, 2^(e+1)], e = first + i; smallest and greatest are the magnitudes themselves, 0 where an older folder does not have
// them. A range is {name, tie, normal, overflow, reached}: up to 2^tie all becomes zero, below 2^normal numbers are
// subnormal, and from `overflow` on (above it, unless `reached`) they overflow.

// Powers of two by halving and doubling: ECMAScript promises no exact result of **.
const powers = (() => {
  const table = new Map([[0, 1]]);
  for (let k = 1, up = 1, down = 1; k <= 1000; ++k) {
    table.set(k, up *= 2);
    table.set(-k, down /= 2);
  }
  return table;
})();
const powerOfTwo = k => powers.get(k);

// The FP32 number that 32 bits are.
const floatOfBits = bits => new Float32Array(Uint32Array.of(bits).buffer)[0];

const zoneNames = {lost: 'rounds to zero', subnormal: 'subnormal', normal: 'normal', overflow: 'overflow'};
const zoneKeys = Object.keys(zoneNames);

// The zone of an FP32 number times `ratio`, whose product has more bits than a number here holds. So it is taken as the sum
// of two that are exact: halves of `ratio` (Veltkamp 1968) times 24 bits. main + rest, |rest| <= 2^-25 main, is compared with
// an edge without being added up: edge - main is exact where main is within a factor of two of the edge (Sterbenz 1974),
// and elsewhere far larger than rest.
function zoneIndex(value, ratio, range) {
  const shifted = ratio * 134217729, high = shifted - (shifted - ratio), main = value * high, rest = value * (ratio - high);
  const over = range.overflow - main;
  return rest <= powerOfTwo(range.tie) - main ? 0 : rest < powerOfTwo(range.normal) - main ? 1 : rest < over || (rest === over && !range.reached) ? 2 : 3;
}

// First and last zone of what bin e of a histogram may hold, and how many of its values are certainly in each.
const below = e => e < -126 ? powerOfTwo(-149) : powerOfTwo(e - 23);  // from 2^e to the next FP32 number
function zonesOfBin(histogram, e, ratio, range) {
  const [, , , , , smallest, greatest] = histogram, bottom = e < -149 ? 0 : powerOfTwo(e);
  let low = bottom + below(e), high = e === 127 ? powerOfTwo(127) * (2 - powerOfTwo(-23)) : powerOfTwo(e + 1);
  const inside = value => value > bottom && value <= powerOfTwo(e + 1);
  const hasSmallest = greatest > 0 && inside(smallest), hasGreatest = greatest > 0 && inside(greatest);
  if (hasSmallest) low = smallest;
  if (hasGreatest) high = greatest;
  // In older folders the lowest bin, which had all of FP32's subnormals.
  if (!(greatest > 0) && e === -127) low = powerOfTwo(-149);
  return [zoneIndex(low, ratio, range), zoneIndex(high, ratio, range), hasSmallest ? 1 : 0, hasGreatest ? 1 : 0];
}

// Counts of the zones as [lower, upper] after multiplication by `ratio`, required scale / recorded scale.
function zonesOf(histogram, ratio, range) {
  const [zero, infinite, nan, first, counts] = histogram;
  const z = {zero, infinite, nan, total: zero + infinite + nan, finite: 0,
             lost: [0, 0], subnormal: [0, 0], normal: [0, 0], overflow: [0, 0]};
  const add = (zone, lower, upper) => {
    z[zoneKeys[zone]][0] += lower;
    z[zoneKeys[zone]][1] += upper;
  };
  counts.forEach((n, i) => {
    if (n === 0) return;
    z.finite += n;
    const [low, high, atLow, atHigh] = zonesOfBin(histogram, first + i, ratio, range);
    if (low === high) return add(low, n, n);
    for (let k = low; k <= high; ++k) add(k, 0, n - atLow - atHigh);
    add(low, atLow, atLow);
    add(high, atHigh, atHigh);
  });
  z.total += z.finite;
  return z;
}

function addZones(list) {
  const sum = {zero: 0, infinite: 0, nan: 0, total: 0, finite: 0, lost: [0, 0], subnormal: [0, 0], normal: [0, 0], overflow: [0, 0]};
  for (const z of list) {
    for (const key of ['zero', 'infinite', 'nan', 'total', 'finite']) sum[key] += z[key];
    for (const key of zoneKeys) z[key].forEach((n, i) => { sum[key][i] += n; });
  }
  return sum;
}

// The share that would round to zero, the middle where a bin is cut; "zeros" where all values are, null where there is no number.
const underflowRate = z => z.finite ? (z.lost[0] + z.lost[1]) / 2 / z.finite : z.zero > 0 ? 'zeros' : null;
// The share that a cast made zero, of its [values, zeros made, Inf and NaN made]; null without a cast.
const castRate = cast => !cast ? null : cast[0] > 0 ? cast[1] / cast[0] : 'zeros';

// One histogram of several, each moved up by so many bins. For pictures: it has no smallest and no greatest value.
function merge(histograms, shifts) {
  const sum = [0, 0, 0, 0, [], 0, 0], filled = histograms.map((h, i) => [h, shifts[i]]).filter(([h]) => h[4].length > 0);
  if (filled.length > 0) {
    const first = Math.min(...filled.map(([h, by]) => h[3] + by)), end = Math.max(...filled.map(([h, by]) => h[3] + by + h[4].length));
    sum[3] = first;
    sum[4] = new Array(end - first).fill(0);
  }
  for (const h of histograms) for (let i = 0; i < 3; ++i) sum[i] += h[i];
  for (const [h, by] of filled) h[4].forEach((n, i) => { sum[4][h[3] + by - sum[3] + i] += n; });
  return sum;
}
