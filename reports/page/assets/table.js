// Tables that sort by a column. Cells say what they sort by in data-sort; cells without a value stay at the bottom.
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

function startTables() {
  for (const table of document.querySelectorAll('table.sortable'))
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = Object.assign(document.createElement('button'), {type: 'button', className: 'sort', title: (cell.title ? cell.title + '; ' : '') + 'click to sort'});
      button.append(...cell.childNodes);
      cell.append(button);
      button.addEventListener('click', () => sortTable(table, column, cell.getAttribute('aria-sort') !== 'ascending'));
    });
}
