import type { Job } from "../api/types";
import { Empty } from "../components/notes";
import { type Column, ListTable } from "../components/table";
import { View } from "../components/view";
import { ago, shortId } from "../format";
import { link } from "../router";

const COLUMNS: Column<Job>[] = [
  { head: "Job", cell: (job) => <a href={link(["jobs", job.id])}>{job.name ?? shortId(job.id)}</a> },
  {
    head: "Status",
    cell: (job) => (
      <span class="status" data-status={job.status}>
        {job.status}
      </span>
    ),
  },
  { head: "Submitted", cell: (job) => ago(job.created_at), number: true },
];

export function JobList(_: { query: URLSearchParams }) {
  return (
    <View title="Jobs">
      <ListTable<Job>
        caption="Jobs, newest first"
        path="/v1/jobs"
        every={2000}
        columns={COLUMNS}
        rowKey={(job) => job.id}
        empty={<Empty title="No jobs yet" />}
      />
    </View>
  );
}
