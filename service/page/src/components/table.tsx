// Tables of what the API lists: one row a thing, its first cell the way to it, more by the press of a button.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { useItems } from "../api/query";
import { Loading, ProblemNote } from "./notes";

export interface Column<Row> {
  head: string;
  cell: (row: Row) => ComponentChildren;
  /** A column of figures is set flush right. */
  number?: boolean;
  /** Left out where the window is narrow. */
  wide?: boolean;
  /** The head is for screen readers alone. */
  mute?: boolean;
}

interface TableProps<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  rowKey: (row: Row) => string;
}

export function Table<Row>({ caption, columns, rows, rowKey }: TableProps<Row>) {
  const look = ({ number, wide }: Column<Row>) => [number && "number", wide && "wide-only"].filter(Boolean).join(" ");
  return (
    <div class="table-frame">
      <table>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.head} scope="col" class={look(column)}>
                {column.mute ? <span class="hidden">{column.head}</span> : column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={rowKey(row)}>
              {columns.map((column) => (
                <td key={column.head} class={look(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface ListProps<Row> extends Omit<TableProps<Row>, "rows"> {
  /** What lists them, such as `/v1/jobs?status=failed`. */
  path: string;
  /** Milliseconds after which it is asked again; 0: never. */
  every?: number;
  empty: ComponentChildren;
}

export function ListTable<Row>({ path, ...rest }: ListProps<Row>) {
  // Another list begins on its first page.
  return <Pages key={path} path={path} {...rest} />;
}

function Pages<Row>({ path, every = 0, empty, ...table }: ListProps<Row>) {
  const [pages, setPages] = useState(1);
  const { data, problem } = useItems<Row>(path, pages, every);
  const [last, setLast] = useState(data);
  // While one page more is on its way, those before it stay.
  const shown = data ?? last;
  if (data && data !== last) setLast(data);
  // With the last page the button has gone; it leaves the focus to the first row that it brought.
  const before = useRef<number | null>(null);
  useEffect(() => {
    if (!data || before.current === null) return;
    const row = document.querySelectorAll(".table-frame tbody tr")[before.current];
    before.current = null;
    if (!data.next_cursor && document.activeElement === document.body) row?.querySelector("a")?.focus();
  }, [data]);
  const more = () => {
    if (!data) return;
    before.current = data.items.length;
    setPages(pages + 1);
  };
  return (
    <>
      <ProblemNote problem={problem} />
      {!shown && !problem && <Loading />}
      {shown && shown.items.length === 0 && empty}
      {shown && shown.items.length > 0 && <Table {...table} rows={shown.items} />}
      {shown?.next_cursor && (
        <button type="button" class="more" aria-disabled={!data} onClick={more}>
          Show more
        </button>
      )}
    </>
  );
}
