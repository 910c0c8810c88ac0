import { Empty } from '../../part/views';

export function SubmitPage() {
  return <Empty title="Submit" />;
}
