"""What a spec would need: the closed formulas for every stage, without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from service.descriptions import Descriptions, runs_code
from service.domain.admission import admit, config_of
from service.domain.choice import OFFLOAD, ProfileOf, Room, activations
from service.domain.cluster import ClusterFacts
from service.domain.dsreading import Import
from service.domain.errors import Forbidden, Problem, SpecRefused, ToolUnavailable, Unavailable
from service.domain.experience import device_bytes, learnt
from service.domain.hf_shape import shape_in
from service.domain.job import Job
from service.domain.key import Scope
from service.domain.outlook import outlooks
from service.domain.parsing import parse, parse_config
from service.domain.plan import Plan
from service.domain.planning import plan_spec
from service.domain.presets import Shape
from service.domain.profile import Profile, described, profile_of, shape_of
from service.domain.spec import JobSpec
from service.domain.timing import timed
from service.domain.worker_memory import WorkerMemory, computes_on_gpu, memory_of_worker
from service.ports import Capacity, Database, Files

# Of so many jobs the newest that is alike is looked for.
REMEMBERED = 100
ROOM_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    capacity: Capacity
    descriptions: Descriptions
    # None where workers run on other machines.
    files: Files | None
    database: Database

    def import_config(self, document: object) -> Import:
        """The spec without its `ds_config` or `fsdp_config`, and what became of each key. Raises SpecRefused."""
        return parse_config(document)

    async def plan(self, document: object, *, may_run_code: bool) -> Plan:
        """Raises SpecRefused, ToolUnavailable; also Forbidden for a model or a dataset of the user's where the
        caller may not run code."""
        parsed = parse(document)
        spec = parsed.spec
        if runs_code(spec) and not may_run_code:
            raise Forbidden(needs=Scope.SUBMIT, has=[Scope.READ])
        profiles, memory = await self.profiles(spec), await self.worker_memory(spec)
        legal = admit(
            spec,
            size_of=None,
            memory=memory,
            shape=await self.shape(spec),
            wishes=parsed.wishes - {OFFLOAD},
            profiles=profiles,
            # A plan says what does not fit; nothing is refused for it.
            must_fit=False,
        ).spec
        return await self._planned(legal, memory, profiles)

    async def of(self, spec: JobSpec) -> Plan | None:
        """None where the size of the model cannot be known now."""
        profiles = await self.known_profiles(spec)
        return None if profiles(spec) is None else await self._planned(spec, await self.worker_memory(spec), profiles)

    async def _planned(self, spec: JobSpec, memory: WorkerMemory | None, profiles: ProfileOf) -> Plan:
        profile = profiles(spec)
        plan = plan_spec(spec, memory=memory, profile=profile)
        if profile is None:
            return plan
        plan = replace(
            plan, outlooks=outlooks(spec, profile, plan.choices), activations_bytes=activations(spec, profiles)
        )
        return timed(plan, spec, profiles, await self.facts(), await self._newest())

    async def profiles(self, spec: JobSpec) -> ProfileOf:
        """Sizes of the spec's model at any micro-batch: by formula where its shape is known, else as a process of the
        data plane describes it; corrected by what the newest job that was alike has measured. Raises SpecRefused,
        ToolUnavailable."""
        found = await self._profiles(spec)
        if isinstance(found, Problem):
            raise SpecRefused([found])
        return found

    async def known_profiles(self, spec: JobSpec) -> ProfileOf:
        """As `profiles`, without any where the data plane cannot tell. Raises SpecRefused for what cannot be built."""
        try:
            found = await self._profiles(spec)
        except ToolUnavailable:
            return profile_of
        return profile_of if isinstance(found, Problem) else found

    async def _profiles(self, spec: JobSpec) -> ProfileOf | Problem:
        if (shape := await self.shape(spec)) is not None:
            theory: ProfileOf = partial(profile_of, shape=shape)
        else:
            description = await self.descriptions.of(spec)
            if "numel" not in description:
                problem = f"its size is not known here: {str(description.get('detail', 'no answer'))[:400]}"
                fix = "plan {name: gpt, ...} of about the same size, or submit it: its workers count for themselves"
                return Problem(field="model", value="...", problem=problem, fix=fix)
            theory = partial(described, description=description)
        return partial(_learnt, theory=theory, jobs=await self._newest())

    async def _newest(self) -> Sequence[Job]:
        async with self.database.read() as work:
            return (await work.jobs.page(state=None, name=None, limit=REMEMBERED, cursor=None)).items

    async def shape(self, spec: JobSpec) -> Shape | None:
        """What the spec tells or, for a model in a folder of the workers' machine, its config."""
        if (known := shape_of(spec)) is not None or self.files is None:
            return known
        documents = [document for path in config_of(spec) if (document := await self.files.document(path)) is not None]
        return shape_in(documents[0]) if documents else None

    async def room(self, spec: JobSpec) -> Room:
        """What is known of a job's model and of the memory of its workers, without any where nothing is."""
        profiles: ProfileOf = profile_of
        if spec.auto or shape_of(spec) is not None:
            asked = asyncio.ensure_future(self.known_profiles(spec))
            # Who asks waits for a brief: a description that takes longer is there for the next one.
            done, _ = await asyncio.wait([asked], timeout=ROOM_S)
            # What cannot be built, its workers will say themselves.
            if done and asked.exception() is None:
                profiles = asked.result()
        has_disk = self.files is not None or spec.offload.path is not None
        return Room(profile_of=profiles, memory=await self.worker_memory(spec), has_disk=has_disk)

    async def facts(self) -> ClusterFacts | None:
        """None where no cluster says."""
        try:
            return await self.capacity.facts()
        except Unavailable:
            return None

    async def worker_memory(self, spec: JobSpec) -> WorkerMemory | None:
        """By what the cluster's nodes say, or workers of the newest job that had such; None where neither is known."""
        facts = await self.facts()
        on_gpu = computes_on_gpu(spec.resources, None if facts is None else facts.slot_kind)
        reported = device_bytes(spec, await self._newest()) if on_gpu else None
        return memory_of_worker(spec.resources, facts, reported_bytes=reported)


def _learnt(spec: JobSpec, *, theory: ProfileOf, jobs: Sequence[Job]) -> Profile | None:
    profile = theory(spec)
    return None if profile is None else learnt(profile, spec, jobs)
