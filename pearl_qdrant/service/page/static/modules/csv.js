// Tables of text: comma-separated values and their relatives, as RFC 4180 has them.

const DELIMITERS = [",", "\t", ";", "|"];

/** Rows of cells. Cells in double quotes may contain delimiters, line ends and doubled quotes. */
export function parseTable(text, delimiter) {
  const rows = [];
  let row = [];
  let cell = "";
  let isQuoted = false;
  const endRow = () => {
    row.push(cell);
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
    cell = "";
  };
  for (let place = 0; place < text.length; place += 1) {
    const character = text[place];
    if (isQuoted) {
      if (character !== '"') cell += character;
      else if (text[place + 1] === '"') {
        cell += '"';
        place += 1;
      } else isQuoted = false;
    } else if (character === '"' && cell === "") isQuoted = true;
    else if (character === delimiter) {
      row.push(cell);
      cell = "";
    } else if (character === "\n" || character === "\r") {
      if (character === "\r" && text[place + 1] === "\n") place += 1;
      endRow();
    } else cell += character;
  }
  if (cell !== "" || row.length) endRow();
  return rows;
}

/** Whether a cell has half of a pair of quotes: then its row was cut within them. */
const isTorn = (cell) => cell.split('"').length % 2 === 0;

/** The delimiter that cuts the first rows into the same number of cells, the largest; a comma if none does. */
export function findDelimiter(text) {
  const start = text.slice(0, 20000);
  let best = { delimiter: ",", width: 1 };
  for (const delimiter of DELIMITERS) {
    const rows = parseTable(start, delimiter).slice(0, 20);
    if (start.length < text.length && rows.length > 1) rows.pop(); // it may be cut off
    const width = rows[0]?.length ?? 1;
    const isEven = rows.every((row) => row.length === width && !row.some(isTorn));
    if (width > best.width && isEven) best = { delimiter, width };
  }
  return best.width > 1 ? best.delimiter : text.includes("\t") ? "\t" : ",";
}

/** Text of a file: UTF-8, else Windows' western encoding. UTF-16 is known by its first two bytes. */
export function decode(bytes) {
  const [first, second] = new Uint8Array(bytes.slice(0, 2));
  if (first === 0xff && second === 0xfe) return new TextDecoder("utf-16le").decode(bytes);
  if (first === 0xfe && second === 0xff) return new TextDecoder("utf-16be").decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

/** Whether bytes are a spreadsheet, an archive, or another file that is no text: it has zeros, and no UTF-16 mark. */
export function isBinary(bytes) {
  const start = new Uint8Array(bytes.slice(0, 4096));
  if ((start[0] === 0xff && start[1] === 0xfe) || (start[0] === 0xfe && start[1] === 0xff)) return false;
  return start.includes(0) || (start[0] === 0x50 && start[1] === 0x4b && start[2] < 9) || String.fromCharCode(...start.slice(0, 5)) === "%PDF-";
}

const quoted = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);

/** Rows as comma-separated values. */
export const formatTable = (rows) => `${rows.map((row) => row.map((cell) => quoted(String(cell ?? ""))).join(",")).join("\r\n")}\r\n`;
