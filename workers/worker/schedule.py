"""The learning rate as a pure function of the step."""

from __future__ import annotations

import math

from service.domain.training import ScheduleSpec

# Of all steps, where WSD is not told how many its decay takes.
DECAY_SHARE = 0.2


def lr_scale(step: int, *, schedule: ScheduleSpec, steps: int) -> float:
    """What multiplies each group's own lr at `step` (the first is 1) of `steps`.

    Linear warm-up that reaches 1 at step `warmup_steps`; then constant, or down to `min_lr_ratio` at the last step:
    linear, half a cosine (Loshchilov and Hutter, SGDR, 2017, equation 5, without restarts), or WSD, which is stable
    until its last steps and linear in them (Hägele et al. 2024, arXiv:2405.18392).
    """
    if step <= schedule.warmup_steps:
        return step / schedule.warmup_steps
    if schedule.name == "constant":
        return 1.0
    begin = schedule.warmup_steps
    if schedule.name == "wsd":
        begin = max(begin, steps - (schedule.decay_steps or max(1, round(steps * DECAY_SHARE))))
    progress = min(1.0, max(0, step - begin) / max(1, steps - begin))
    left = 0.5 * (1.0 + math.cos(math.pi * progress)) if schedule.name == "cosine" else 1.0 - progress
    return schedule.min_lr_ratio + (1.0 - schedule.min_lr_ratio) * left
