// Where the values of a histogram land in FP16: the rules of numerics/range_counts.hpp, bin by bin, with the same answers.
// A histogram is [zero, infinite, nan, first exponent, counts]; counts[i] belongs to the bin (2^e, 2^(e+1)], e = first + i.

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

const lostEdge = powerOfTwo(-25), normalEdge = powerOfTwo(-14), overflowEdge = 65520;
const zoneNames = {lost: 'rounds to zero', subnormal: 'subnormal', normal: 'normal', overflow: 'overflow'};
const zoneKeys = Object.keys(zoneNames);

// The zone of main + rest, |rest| <= 2^-23 main, decided without adding the two, which would round: edge - main is exact where
// main is within a factor of two of the edge (Sterbenz 1974), and elsewhere far larger than rest.
const zoneIndex = (main, rest) =>
  rest <= lostEdge - main ? 0 : rest < normalEdge - main ? 1 : rest < overflowEdge - main ? 2 : 3;

// First and last zone of the FP32 numbers of bin e times `ratio`. Products with a power of two are exact. The bin of
// -127 may hold all that is smaller (older folders); the highest ends at the largest finite number.
function zonesOfBin(e, ratio) {
  const from = powerOfTwo(e) * ratio, to = powerOfTwo(e + 1) * ratio;
  const first = e === -127 || e === -150 ? zoneIndex(powerOfTwo(-149) * ratio, 0)
                                         : zoneIndex(from, from * powerOfTwo(e < -127 ? -149 - e : -23));
  const last = e === 127 ? zoneIndex(to, -to * powerOfTwo(-24)) : zoneIndex(to, 0);
  return [first, last];
}

// Counts of the zones as [lower, upper] after multiplication by `ratio`, wanted scale / recorded scale.
function zonesOf([zero, infinite, nan, first, counts], ratio) {
  const z = {zero, infinite, nan, total: zero + infinite + nan, finite: 0,
             lost: [0, 0], subnormal: [0, 0], normal: [0, 0], overflow: [0, 0]};
  counts.forEach((n, i) => {
    if (n === 0) return;
    z.finite += n;
    const [low, high] = zonesOfBin(first + i, ratio);
    for (let k = low; k <= high; ++k) z[zoneKeys[k]][1] += n;
    if (low === high) z[zoneKeys[low]][0] += n;
  });
  z.total += z.finite;
  return z;
}

function addZones(list) {
  const sum = zonesOf([0, 0, 0, 0, []], 1);
  for (const z of list) {
    for (const key of ['zero', 'infinite', 'nan', 'total', 'finite']) sum[key] += z[key];
    for (const key of zoneKeys) z[key].forEach((n, i) => { sum[key][i] += n; });
  }
  return sum;
}

// The share that rounds to zero, the middle where a bin is cut; null where there is nothing to round.
const underflowRate = z => z.finite ? (z.lost[0] + z.lost[1]) / 2 / z.finite : null;

// One histogram of several, each moved up by so many bins.
function merge(histograms, shifts) {
  const sum = [0, 0, 0, 0, []], filled = histograms.map((h, i) => [h, shifts[i]]).filter(([h]) => h[4].length > 0);
  if (filled.length > 0) {
    const first = Math.min(...filled.map(([h, by]) => h[3] + by)), end = Math.max(...filled.map(([h, by]) => h[3] + by + h[4].length));
    sum[3] = first;
    sum[4] = new Array(end - first).fill(0);
  }
  for (const h of histograms) for (let i = 0; i < 3; ++i) sum[i] += h[i];
  for (const [h, by] of filled) h[4].forEach((n, i) => { sum[4][h[3] + by - sum[3] + i] += n; });
  return sum;
}
