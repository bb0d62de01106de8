// The server's words about jobs: each job's id in them is a link that bears its name.

import { Named } from "../components/named";

export function Mentions({ text }: { text: string }) {
  return <>{text.split(/(job_\w+)/).map((part, position) => (position % 2 ? <Named key={part} of="jobs" id={part} /> : part))}</>;
}
