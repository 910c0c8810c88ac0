"""The learning rate as a pure function of the step."""

from __future__ import annotations

import math

from service.domain.spec import ScheduleSpec


def lr_scale(step: int, *, schedule: ScheduleSpec, steps: int) -> float:
    """What multiplies each group's own lr at `step` (the first is 1) of `steps`.

    Linear warm-up that reaches 1 at step `warmup_steps`; then constant, or half a cosine down to `min_lr_ratio` at the
    last step (Loshchilov and Hutter, SGDR, 2017, equation 5, without restarts).
    """
    if step <= schedule.warmup_steps:
        return step / schedule.warmup_steps
    if schedule.name == "constant":
        return 1.0
    progress = min(1.0, (step - schedule.warmup_steps) / max(1, steps - schedule.warmup_steps))
    return schedule.min_lr_ratio + (1.0 - schedule.min_lr_ratio) * 0.5 * (1.0 + math.cos(math.pi * progress))
