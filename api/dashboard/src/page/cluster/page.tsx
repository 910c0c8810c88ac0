import { Empty } from '../../part/views';

export function ClusterPage() {
  return <Empty title="Cluster" />;
}
