"""Keys of a DeepSpeed configuration that change nothing here, and those that ask for what is not here: why, and what
to do. Keys are dotted paths; one that names a section speaks for all below it. The names are DeepSpeed's documented
ones (deepspeed.ai/docs/config-json). What becomes a field of the spec is in `dsconfig.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_UNIT = "what travels at once is a unit of the model; see units"
_AHEAD = "the next unit is always fetched while this one is used"
_MEMORY = "buffers are reused and pinned where there is a GPU"
_CHARTS = "every step is measured, shown and kept by the service"
_RELEASED = "a unit is released after its use, the next one is prefetched; see units"
_FLAT = "gradients of a unit are one flat vector already"

IGNORED: Mapping[str, str] = {
    "steps_per_print": _CHARTS,
    "wall_clock_breakdown": _CHARTS,
    "memory_breakdown": _CHARTS,
    "dump_state": _CHARTS,
    "flops_profiler": _CHARTS,
    "comms_logger": _CHARTS,
    "tensorboard": _CHARTS,
    "wandb": _CHARTS,
    "csv_monitor": _CHARTS,
    "comet": _CHARTS,
    "zero_allow_untested_optimizer": "the optimizers of the spec all work at every stage",
    "zero_force_ds_cpu_optimizer": "torch's fused kernels update what rests on the CPU",
    "gradient_predivide_factor": "gradients are summed and normalised by the global batch",
    "prescale_gradients": "gradients are summed and normalised by the global batch",
    "sparse_gradients": "gradients travel dense; the sum is the same",
    "disable_allgather": "the way a gather travels is the engine's",
    "dataloader_drop_last": "the order of samples has no end, so no batch is short",
    "aio": "files of states are read and written with read-ahead by the engine's own rules",
    "compile": "models run as they are written",
    "nebula": "checkpoints are saved behind training always",
    "checkpoint": "every checkpoint loads at any stage and any number of workers; see checkpoint of the spec",
    "load_universal_checkpoint": "every checkpoint loads at any stage and any number of workers",
    "activation_checkpointing.partition_activations": "there is no model parallelism to partition over",
    "activation_checkpointing.contiguous_memory_optimization": "the allocator's own blocks are used",
    "activation_checkpointing.number_checkpoints": "each repeated block is one; see training.activation_checkpointing",
    "activation_checkpointing.synchronize_checkpoint_boundary": "nothing waits at a boundary",
    "activation_checkpointing.profile": _CHARTS,
    "bf16.immediate_grad_update": "each contribution is added when it is new",
    "fp16.auto_cast": "the forward runs in the precision of the spec always",
    "optimizer.legacy_fusion": "torch's fused kernels are used always",
    "optimizer.params.torch_adam": "torch's fused kernels are used always",
    "optimizer.params.fused": "torch's fused kernels are used always",
    "scheduler.params.last_batch_iteration": "a job knows its step",
    "zero_optimization.overlap_comm": "communication always overlaps the computation",
    "zero_optimization.contiguous_gradients": _FLAT,
    "zero_optimization.reduce_scatter": "the stage decides: reduce-scatter from stage 1 on",
    "zero_optimization.reduce_bucket_size": _UNIT,
    "zero_optimization.allgather_bucket_size": _UNIT,
    "zero_optimization.allgather_partitions": _UNIT,
    "zero_optimization.use_multi_rank_bucket_allreduce": _UNIT,
    "zero_optimization.round_robin_gradients": "shards are equal intervals of each unit",
    "zero_optimization.sub_group_size": "the step walks unit by unit; see units",
    "zero_optimization.elastic_checkpoint": "every checkpoint loads at any number of workers",
    "zero_optimization.load_from_fp32_weights": "the fp32 master is what a checkpoint holds",
    "zero_optimization.ignore_unused_parameters": "parameters without a gradient contribute zeros",
    "zero_optimization.legacy_stage1": "there is one stage 1",
    "zero_optimization.memory_efficient_linear": "torch's own linear is used",
    "zero_optimization.override_module_apply": "models start on the meta device",
    "zero_optimization.log_trace_cache_warnings": "nothing is traced",
    "zero_optimization.leaf_module": "units.layers names the modules that are gathered whole",
    "zero_optimization.module_granularity_threshold": "units.min_params is the rule by size",
    "zero_optimization.cpu_offload_use_pin_memory": _MEMORY,
    "zero_optimization.offload_optimizer.pin_memory": _MEMORY,
    "zero_optimization.offload_optimizer.buffer_count": _MEMORY,
    "zero_optimization.offload_optimizer.buffer_size": _MEMORY,
    "zero_optimization.offload_optimizer.fast_init": "states begin by allocation",
    "zero_optimization.offload_optimizer.pipeline": _AHEAD,
    "zero_optimization.offload_optimizer.pipeline_read": _AHEAD,
    "zero_optimization.offload_optimizer.pipeline_write": _AHEAD,
    "zero_optimization.offload_param.pin_memory": _MEMORY,
    "zero_optimization.offload_param.buffer_count": _MEMORY,
    "zero_optimization.offload_param.buffer_size": _MEMORY,
    "zero_optimization.offload_param.max_in_cpu": "offload.ratio says how much leaves the device",
    "zero_optimization.stage3_prefetch_bucket_size": _AHEAD,
    "zero_optimization.stage3_param_persistence_threshold": "small parameters travel with their unit",
    "zero_optimization.stage3_model_persistence_threshold": "small parameters travel with their unit",
    "zero_optimization.stage3_max_live_parameters": _RELEASED,
    "zero_optimization.stage3_max_reuse_distance": _RELEASED,
    "zero_optimization.stage3_use_all_reduce_for_fetch_params": "the way a gather travels is the engine's",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": "elastane export writes whole weights when asked",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save": "elastane export writes whole weights when asked",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """`harmless`: values that ask for nothing. A section asks for nothing too where its `enabled` is false."""

    why: str
    fix: str
    harmless: tuple[Any, ...] = (False, None)


_REMOVE = "remove it; training is as exact without it, with more bytes on the wire"
_NOT_HERE = "remove it, or stay with DeepSpeed for this job"
ABSENT: Mapping[str, Absent] = {
    "amp": Absent(why="NVIDIA's amp is not used here", fix="use bf16 or fp16"),
    "elasticity": Absent(
        why="the batch never depends on the number of workers here, so nothing has to be searched for",
        fix="remove it, and write workers: {min: 1, max: N} in the spec",
    ),
    "autotuning": Absent(why="nothing is tried out", fix="use stage: auto, or elastane plan"),
    "curriculum_learning": Absent(why="there is no curriculum of lengths", fix=_NOT_HERE),
    "data_efficiency": Absent(why="there is no sampling by difficulty or token dropping", fix=_NOT_HERE),
    "progressive_layer_drop": Absent(why="no layer is dropped", fix=_NOT_HERE),
    "eigenvalue": Absent(why="there is no quantised training", fix=_NOT_HERE),
    "quantize_training": Absent(why="there is no quantised training", fix=_NOT_HERE),
    "compression_training": Absent(why="there is no compression", fix=_NOT_HERE),
    "sparse_attention": Absent(why="attention is the model's", fix="build it into the model"),
    "pipeline": Absent(why="there is no pipeline parallelism", fix=_NOT_HERE),
    "tensor_parallel": Absent(why="there is no tensor parallelism", fix=_NOT_HERE),
    "hybrid_engine": Absent(why="there is no inference while training", fix=_NOT_HERE),
    "activation_checkpointing.cpu_checkpointing": Absent(
        why="activations stay on the device", fix="remove it, and use training.activation_checkpointing: true"
    ),
    "fp16.consecutive_hysteresis": Absent(why="hysteresis is used up once", fix="remove it"),
    "fp16.fp16_master_weights_and_grads": Absent(why="the master is always fp32", fix="remove it"),
    "optimizer.params.amsgrad": Absent(why="there is no amsgrad", fix="remove it"),
    "optimizer.params.bias_correction": Absent(why="the bias is always corrected", fix="remove it", harmless=(True,)),
    "optimizer.params.dampening": Absent(why="momentum is not dampened", fix="remove it", harmless=(0, 0.0)),
    "optimizer.params.muon_lr": Absent(why="one rate is of all parameters", fix="say optimizer.params.lr"),
    "optimizer.params.adam_lr": Absent(why="one rate is of all parameters", fix="say optimizer.params.lr"),
    "scheduler.params.warmup_min_lr": Absent(why="the warm-up begins at 0", fix="use 0", harmless=(0, 0.0, "auto")),
    "scheduler.params.warmup_min_ratio": Absent(why="the warm-up begins at 0", fix="use 0", harmless=(0, 0.0, "auto")),
    "seq_parallel_communication_data_type": Absent(
        why="there is no sequence parallelism", fix="remove it", harmless=("fp32",)
    ),
    "zero_optimization.zero_hpz_partition_size": Absent(
        why="there is no second copy of parameters inside a node", fix=_REMOVE, harmless=(1, None)
    ),
    "zero_optimization.zero_quantized_weights": Absent(why="gathers are not quantised", fix=_REMOVE),
    "zero_optimization.zero_quantized_nontrainable_weights": Absent(why="gathers are not quantised", fix=_REMOVE),
    "zero_optimization.zero_quantized_gradients": Absent(why="reductions are not quantised", fix=_REMOVE),
    "zero_optimization.zeropp_loco_param": Absent(why="reductions are not quantised", fix=_REMOVE),
    "zero_optimization.mics_shard_size": Absent(
        why="shards go over all workers, not over groups", fix="remove it", harmless=(-1, None)
    ),
    "zero_optimization.mics_hierarchical_params_gather": Absent(why="shards go over all workers", fix="remove it"),
}
