// Tables that sort by a column, keep rows that hold some words, and save themselves as CSV. Cells say what they sort by in
// data-sort; cells without a value stay at the bottom.
function sortTable(table, column, ascending) {
  const body = table.tBodies[0];
  const value = row => row.cells[column].dataset.sort ?? row.cells[column].textContent;
  const missing = text => text === '' || text === '–';
  const compare = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (missing(x) || missing(y)) return missing(x) - missing(y);
    const order = Number.isNaN(Number(x)) || Number.isNaN(Number(y)) ? x.localeCompare(y, 'en', {numeric: true}) : Number(x) - Number(y);
    return ascending ? order : -order;
  };
  body.replaceChildren(...[...body.rows].sort(compare));
  [...table.tHead.rows[0].cells].forEach((cell, i) => {
    if (i === column) cell.setAttribute('aria-sort', ascending ? 'ascending' : 'descending');
    else cell.removeAttribute('aria-sort');
  });
}

// A cell that shows one number gives all its digits, others their words (RFC 4180).
function csvOf(table) {
  const one = cell => {
    const text = cell.textContent.replace('★', '').trim();
    return cell.dataset.sort && /^[+\-−]?[\d.,]+(e[-+]\d+)?\s?(%|points|point|×|[kMG])?$/.test(text) ? cell.dataset.sort : text === '–' ? '' : text;
  };
  const quoted = text => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const heads = [...table.tHead.rows[0].cells].map(cell => quoted(cell.textContent.trim()));
  return [heads, ...[...table.tBodies[0].rows].filter(row => !row.hidden).map(row => [...row.cells].map(cell => quoted(one(cell))))].map(row => row.join(',')).join('\r\n') + '\r\n';
}

function tableTools(table) {
  const rows = [...table.tBodies[0].rows], name = table.dataset.name, bar = element('div', {className: 'tools'});
  const button = element('button', {type: 'button', className: 'save', textContent: 'CSV', title: `Save “${name}” as a CSV file`});
  button.setAttribute('aria-label', `Save as CSV: ${name}`);
  button.addEventListener('click', () => save(name.replace(/[^\w]+/g, '-') + '.csv', 'text/csv', csvOf(table)));
  if (rows.length > 3) {
    const input = element('input', {type: 'search', placeholder: 'any words of a row'}), count = element('output');
    input.addEventListener('input', () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) row.hidden = !wanted.every(word => row.textContent.toLowerCase().includes(word));
      count.textContent = wanted.length > 0 ? `${rows.filter(row => !row.hidden).length} of ${rows.length}` : '';
    });
    bar.append(element('label', {}, ['Filter ', input]), count);
  }
  bar.append(button);
  table.parentNode.before(bar);
}

function startTables() {
  for (const table of document.querySelectorAll('table.sortable')) {
    tableTools(table);
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = element('button', {type: 'button', className: 'sort'}, [...cell.childNodes]);
      button.dataset.tip = `${cell.dataset.tip} Click to sort.`;
      cell.removeAttribute('data-tip');
      cell.append(button);
      button.addEventListener('click', () => sortTable(table, column, cell.getAttribute('aria-sort') !== 'ascending'));
    });
  }
}
