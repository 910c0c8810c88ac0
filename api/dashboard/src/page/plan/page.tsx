import { Empty } from '../../part/views';

export function PlanPage() {
  return <Empty title="Plan" />;
}
