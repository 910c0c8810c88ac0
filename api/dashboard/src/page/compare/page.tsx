import { Empty } from '../../part/views';

export function ComparePage() {
  return <Empty title="Compare" />;
}
