import { View } from "../components/view";
import { JobsNow } from "./jobs-now";

export function Overview() {
  return (
    <View title="Overview">
      <JobsNow />
    </View>
  );
}
