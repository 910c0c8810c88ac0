/** What is asked before a checkpoint is deleted, and the command that exports one. */

import { bytes, text } from '../../domain/format';
import { Command } from '../../part/copy';
import { Dialog } from '../../part/dialog';
import type { CheckpointList } from '../../store/checkpoints';
import type { Checkpoint } from '../../wire/checkpoint';

export interface Asked {
  what: 'export' | 'delete';
  one: Checkpoint;
}

export function CheckpointDialog({ asked, list, onClose }: { asked: Asked; list: CheckpointList; onClose(): void }) {
  const { one } = asked;
  if (asked.what === 'export') {
    return (
      <Dialog title={`Export the checkpoint of step ${one.step}`} onClose={onClose}>
        <p>As a folder for Hugging Face's loaders, or with --format dcp for torch's distributed checkpoint:</p>
        <Command what="Command" text={`elastane export ${list.jobId} --step ${one.step} --to DIR`} />
        <p class="hint">It rests at {one.uri}: one safetensors file per rank that wrote, and a manifest.</p>
      </Dialog>
    );
  }
  const remove = (): void => {
    onClose();
    void list.remove(one.step);
  };
  return (
    <Dialog title={`Delete the checkpoint of step ${one.step}?`} confirm="Delete the checkpoint" danger onConfirm={remove} onClose={onClose}>
      <p>
        {one.files} file{one.files === 1 ? '' : 's'}, {text(bytes(one.size_bytes))}
        {one.pinned && ', pinned'}. Nothing brings it back, and no job can start from it any more.
      </p>
    </Dialog>
  );
}
