"""``simulator.reports.handoff.commands``, ``.checkpoint`` and ``.kubernetes``: one replica in the words of an engine.

The engine here is a made-up one, whose words say which setting or condition they stand for.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml

from simulator.phases.deployment import deploy
from simulator.phases.memory import memory_plan
from simulator.planner.handoff import Checkpoint, LaunchSettings, served_checkpoint
from simulator.reports.handoff.commands import (
    command_text,
    environment,
    filled,
    flags,
    options_text,
    shell_launch,
    shell_router,
    speculation_items,
    words,
)
from simulator.reports.handoff.kubernetes import gateway_objects, pool_name, router_flags, router_objects
from simulator.reports.handoff.launch import checkpoint_script
from simulator.reports.handoff.notes import tier_notes, untuned_notes
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.engine.launch import LaunchSpec, load_launch
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques_text import techniques_spec

MODEL = "meta-llama/Llama-3.1-8B"
PLACES = {"rank": "R", "head": "H", "host": "A"}


def launch(**changed: Any) -> LaunchSpec:
    return LaunchSpec.model_validate(
        {
            "release": "1",
            "title": "Engine",
            "checked": "parser",
            "command": "engine ${checkpoint}",
            "port": 8000,
            "health_path": "/health",
            "images": {},
            "flags": ("--always ${max_num_seqs}", {"flag": "--tensor ${tp_size}", "when": ("several_devices",)}),
            "sources": {},
            **changed,
        }
    )


def settings(
    spec: LaunchSpec,
    *,
    tp: int = 1,
    techniques: dict[str, str] | None = None,
    path: str = MODEL,
    servers: int = 1,
    role: Any = "",
    replicas: int = 2,
    spares: int = 1,
    model: str = "llama-3.1-8b",
    hardware: str = "h100",
    dp: int = 1,
    tiers: str | None = None,
) -> LaunchSettings:
    deployment = deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=tp, dp_size=dp, ep_size=tp * dp if dp > 1 else 1),
        techniques=techniques_spec(techniques or {}),
        engine=EngineSpec.model_validate({"max_num_seqs": 64, "kv_tiers": tiers}),
    )
    return LaunchSettings(
        launch=spec,
        model_id=MODEL,
        checkpoint=Checkpoint(origin="own", path=path, base=MODEL),
        deployment=deployment,
        max_model_len=8192,
        static_share=0.9,
        cache_share=0.8,
        cache_tokens=100_000,
        weights_bytes=16e9,
        servers=servers,
        devices_per_server=tp * dp,
        role=role,
        other=None,
        replicas=replicas,
        spares=spares,
        server=None,
    )


class TestFlags:
    def test_a_flag_is_there_where_all_its_conditions_hold(self) -> None:
        assert flags(settings(launch()), places=PLACES) == ["--always 64"]
        assert flags(settings(launch(), tp=2), places=PLACES) == ["--always 64", "--tensor 2"]
        both = launch(flags=({"flag": "--x", "when": ("several_devices", "several_servers")},))
        assert flags(settings(both, tp=2), places=PLACES) == []
        assert flags(settings(both, tp=2, servers=2), places=PLACES) == ["--x"]

    def test_an_unknown_setting_is_a_fault_of_the_profile(self) -> None:
        with pytest.raises(KeyError, match="nothing"):
            filled("--x ${nothing}", {"something": "1"})
        assert filled("--x $$HOME ${a}", {"a": "1"}) == "--x $HOME 1"

    @pytest.mark.parametrize("path", ["it's", "a b", "$(reboot)", "`x`", 'say "x"', "a;b"])
    def test_a_name_stays_one_word_whatever_it_holds(self, path: str) -> None:
        spec = launch(flags=("--model ${checkpoint}",), command="engine")
        item = settings(spec, path=path)
        assert words(item, places=PLACES) == ["engine", "--model", path]
        assert shlex.split(shell_launch(item).replace("\\\n", " ")) == ["engine", "--model", path]

    def test_speculation_only_where_the_plan_speculates_and_the_engine_has_the_method(self) -> None:
        spec = launch(speculation={"ngram": ({"flag": "--guess ${k} ${verify_tokens}"},)})
        guessing = settings(spec, techniques={"speculation": "ngram:k=4"})
        # Four guesses are verified with the token before them.
        assert flags(guessing, places=PLACES) == ["--always 64", "--guess 4 5"]
        assert speculation_items(settings(spec)) == []
        assert speculation_items(replace(guessing, launch=launch())) == []

    @pytest.mark.parametrize(
        ("engine", "model", "hardware", "names"),
        [
            ("vllm", "llama-3.1-8b", "h100", set()),
            ("vllm", "gpt-oss-20b", "h100", set()),
            ("vllm", "llama-3.1-8b", "b200", set()),
            ("vllm", "gpt-oss-20b", "b200", {"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8"}),
            ("vllm", "llama-3.1-8b", "mi300x", {"VLLM_ROCM_USE_AITER"}),
            ("vllm", "gpt-oss-20b", "mi355x", {"VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION"}),
            ("sglang", "llama-3.1-8b", "h100", set()),
            ("sglang", "llama-3.1-8b", "mi355x", {"SGLANG_USE_AITER"}),
        ],
    )
    def test_engines_are_told_to_run_the_kernels_that_are_priced(
        self, engine: str, model: str, hardware: str, names: set[str]
    ) -> None:
        spec = load_launch(engine)
        assert spec is not None
        told = environment(settings(spec, model=model, hardware=hardware), places=PLACES)
        assert told == dict.fromkeys(names, "1")

    def test_variables_whose_condition_holds(self) -> None:
        spec = launch(
            environment=(
                {"name": "A", "value": "${tp_size}"},
                {"name": "B", "value": "${host}", "when": "several_devices"},
            )
        )
        assert environment(settings(spec), places=PLACES) == {"A": "1"}
        assert environment(settings(spec, tp=2), places=PLACES) == {"A": "2", "B": "A"}

    def test_a_tier_of_a_replica_is_divided_among_the_processes_that_are_told_of_it(self) -> None:
        """vLLM's ranks of data-parallel attention are engines of their own, LMCache's workers of one device."""
        spec = load_launch("vllm")
        assert spec is not None
        tiers = f"host:{64 * 2**30}|nvme:{4000 * 2**30},bytes_per_s=2e10"
        told = settings(spec, model="gpt-oss-20b", tp=2, dp=2, tiers=tiers)
        assert "--kv-offloading-size 32" in flags(told, places=PLACES)
        assert environment(told, places=PLACES)["LMCACHE_MAX_LOCAL_DISK_SIZE"] == "1000"

    def test_a_store_is_told_where_it_is(self) -> None:
        """SGLang stops where it asks for Mooncake's store and nobody says where its master is."""
        spec = load_launch("sglang")
        assert spec is not None
        told = settings(spec, tiers="host:1e11|remote:1e13")
        assert "--hicache-storage-backend mooncake" in flags(told, places=PLACES)
        assert environment(told, places=PLACES)["MOONCAKE_MASTER"] == "ADDRESS_OF_THE_STORE"
        assert "MOONCAKE_MASTER" not in environment(settings(spec, tiers="host:1e11"), places=PLACES)

    @pytest.mark.parametrize(
        ("hardware", "tp", "untuned"),
        [("b200", 1, False), ("gb200", 1, True), ("h200", 1, False), ("gh200", 1, True), ("b200", 2, True)],
    )
    def test_experts_that_the_release_has_no_tuned_tiles_for_are_named(
        self, hardware: str, tp: int, untuned: bool
    ) -> None:
        """vLLM 0.15.1 ships files by the name of the device: 128 experts of width 768 on B200 and H200 alone."""
        spec = load_launch("vllm")
        assert spec is not None
        notes = untuned_notes(settings(spec, model="qwen3-30b-a3b", hardware=hardware, tp=tp))
        assert [f"128 experts of width {768 // tp} in 16 bits on" in note for note in notes] == [True] * untuned
        assert untuned_notes(settings(spec, model="gpt-oss-20b", hardware=hardware)) == []

    def test_a_tier_that_needs_another_is_said_to(self) -> None:
        spec = load_launch("vllm")
        assert spec is not None
        alone = settings(spec, tiers="nvme:4e12,bytes_per_s=2e10")
        assert any(
            "nvme tier out: vLLM has no flag for it without host memory above it." in n for n in tier_notes(alone)
        )
        assert not list(tier_notes(settings(spec)))


class TestOptions:
    def test_dotted_paths_are_nested_in_their_order(self) -> None:
        spec = launch(
            flags=(
                {"option": "a.b.c", "value": "1"},
                {"option": "a.b.d", "value": "${tp_size}"},
                {"option": "a.e", "value": "true", "when": ("several_devices",)},
                {"option": "f", "value": "${draft_model}"},
            ),
            options_file="options.yaml",
        )
        assert options_text(settings(spec)) == 'a:\n  b:\n    c: 1\n    d: 1\nf: "PATH_OF_THE_DRAFTER"\n'
        found = yaml.safe_load(options_text(settings(spec, tp=2)))
        assert found == {"a": {"b": {"c": 1, "d": 2}, "e": True}, "f": "PATH_OF_THE_DRAFTER"}
        assert "cat > options.yaml <<'YAML'\n" in shell_launch(settings(spec))

    def test_without_options_there_is_no_file(self) -> None:
        assert options_text(settings(launch())) == ""
        assert "YAML" not in shell_launch(settings(launch()))


class TestCommands:
    def test_a_part_a_line(self) -> None:
        assert command_text("run", ["--a 1", "--b"]) == "run \\\n  --a 1 \\\n  --b\n"
        assert command_text("run", []) == "run\n"

    def test_servers_of_a_replica_know_their_rank_or_join(self) -> None:
        ranked = shell_launch(settings(launch(worker_flags=("--headless",)), tp=2, servers=2))
        assert "# On each of 2 servers" in ranked
        assert '$([ "$RANK" = 0 ] || echo --headless)' in ranked
        joined = shell_launch(settings(launch(join="mpirun -n ${servers}"), tp=2, servers=2))
        assert joined.startswith("mpirun -n 2 engine ")
        assert "RANK" not in joined

    def test_a_router_has_an_address_for_every_replica_and_spare(self) -> None:
        spec = launch(
            router={
                "package": "router",
                "command": "router",
                "port": 9000,
                "flags": ("--by prefix",),
                "pool_flags": ("--pools",),
                "url_flags": {"": "--urls ${urls}", "prefill": "--prefill ${url}", "decode": "--decode ${url}"},
            }
        )
        assert spec.router is not None
        alone = shlex.split(shell_router(spec.router, [settings(spec)]).partition("\n")[2].replace("\\\n", " "))
        assert alone[alone.index("--urls") + 1 :] == [f"http://REPLICA-{place}:8000" for place in (1, 2, 3)]
        pools = [settings(spec, role="prefill", replicas=1, spares=0), settings(spec, role="decode", spares=0)]
        text = shell_router(spec.router, pools)
        assert text.startswith("pip install router\n")
        assert "--pools" in text
        assert "--by prefix" not in text
        assert [text.count(f"http://{host}:8000") for host in ("PREFILL-1", "PREFILL-2", "DECODE-2")] == [1, 0, 1]

    def test_a_router_may_read_its_addresses_from_a_file(self) -> None:
        config = "prefill: {n: ${prefill_count}, at: [${prefill_hosts}]}\ndecode: {at: [${decode_hosts}]}\n"
        router = {"command": "router -c r.yaml", "port": 9000, "config_file": "r.yaml", "config": config}
        spec = launch(router=router)
        assert spec.router is not None
        pools = [
            settings(spec, role="prefill", replicas=2, spares=1),
            settings(spec, role="decode", replicas=1, spares=0),
        ]
        text = shell_router(spec.router, pools)
        assert text.endswith("YAML\nrouter -c r.yaml\n")
        found = yaml.safe_load(text.partition("<<'YAML'\n")[2].partition("YAML\n")[0])
        assert found["prefill"] == {"n": 3, "at": ["PREFILL-1:8000", "PREFILL-2:8000", "PREFILL-3:8000"]}
        assert found["decode"] == {"at": ["DECODE-1:8000"]}


class TestCheckpoints:
    @staticmethod
    def served(
        spec: LaunchSpec,
        model_id: str = "someone/Own-8B",
        *,
        model: str = "llama-3.1-8b",
        weights: str | None = None,
        scheme: str | None = None,
        hardware: str = "h100",
        tp: int = 1,
    ) -> tuple[Checkpoint, str]:
        deployment = deploy(
            model=load_model(model),
            hardware=load_hardware(hardware),
            parallelism=ParallelismSpec(tp_size=tp),
            precision=PrecisionSpec.model_validate({"weights": weights} if weights else {"scheme": scheme}),
            engine=EngineSpec(),
        )
        memory = memory_plan(deployment)
        found = served_checkpoint(deployment, model_id=model_id, scheme=scheme, memory=memory, launch=spec)
        return found, checkpoint_script(found, deployment.plan)

    def test_the_models_own_where_it_has_the_planned_weights(self) -> None:
        found, script = self.served(launch(quantizes={"fp8": "fp8"}), weights="bf16")
        assert (found.origin, found.path, found.quantization, script) == ("own", "someone/Own-8B", "", "")

    def test_made_while_loading_where_sixteen_bits_fit(self) -> None:
        spec = launch(quantizes={"fp8": "own-fp8"})
        found, _ = self.served(spec, weights="fp8")
        assert (found.origin, found.quantization) == ("quantized_at_load", "own-fp8")
        # 70 billion weights are 71 GB in 8 bits, which 80 GB hold, and 141 GB in 16, which only an H200 holds.
        large, _ = self.served(spec, model="llama-3.1-70b", weights="fp8")
        larger, _ = self.served(spec, model="llama-3.1-70b", weights="fp8", hardware="h200")
        assert larger.origin == "quantized_at_load"
        assert large.origin == "made"

    def test_a_published_one_before_one_that_is_made(self) -> None:
        named = "meta-llama/Llama-3.1-8B-Instruct"
        spec = launch(checkpoints=("compressed-tensors",), quantizes={"fp8": "fp8"})
        found, _ = self.served(spec, named, weights="fp8")
        assert found.origin == "published"
        assert found.base == named
        assert "8B" in found.path
        assert found.source
        assert self.served(launch(quantizes={"fp8": "fp8"}), named, weights="fp8")[0].origin == "quantized_at_load"

    @pytest.mark.parametrize(
        ("kinds", "tool"), [(("compressed-tensors",), "llmcompressor"), (("modelopt",), "hf_ptq.py")]
    )
    def test_a_script_makes_what_nobody_published_in_the_folder_that_is_served(
        self, kinds: tuple[str, ...], tool: str
    ) -> None:
        found, script = self.served(launch(checkpoints=kinds), weights="int8")
        assert found.origin == "made"
        assert tool in script
        assert found.path == "./Own-8B-INT8"
        assert found.path.removeprefix("./") in script
        assert "someone/Own-8B" in script

    @pytest.mark.parametrize("weights", ["bf16", "fp8", "int4"])
    def test_llama_cpp_gets_a_file_of_its_own(self, weights: str) -> None:
        found, script = self.served(launch(checkpoints=("gguf",)), weights=weights)
        last = script.splitlines()[-1]
        assert found.path.removeprefix("./") in last
        assert found.path.endswith(".gguf")
        assert ("llama-quantize" in script) is (weights != "bf16")

    def test_a_name_with_quotes_is_no_command(self) -> None:
        _, script = self.served(launch(checkpoints=("modelopt",)), "x/it's; reboot", weights="int8")
        line = next(line for line in script.splitlines() if "hf_ptq" in line)
        assert shlex.split(line.removesuffix("\\"))[-1] == "x/it's; reboot"


class TestRouting:
    @staticmethod
    def pools() -> list[LaunchSettings]:
        spec = load_launch("sglang")
        assert spec is not None
        return [settings(spec, role="prefill"), settings(spec, role="decode")]

    def test_a_router_finds_each_pool_by_its_label(self) -> None:
        items = self.pools()
        router = items[0].launch.router
        assert router is not None
        found = " ".join(router_flags(router, items))
        assert all(pool_name(item) in found for item in items)
        assert all(flag in found for flag in router.pool_flags)
        both = " ".join(router_flags(router, [replace(items[0], role="")]))
        assert router.pool_flags
        assert all(flag in both for flag in router.flags)
        assert not any(flag in both for flag in router.pool_flags)
        assert f"--service-discovery-port {items[0].launch.port}" in found

    def test_it_may_read_pods_and_nothing_else(self) -> None:
        items = self.pools()
        router = items[0].launch.router
        assert router is not None
        objects = {item["kind"]: item for item in router_objects(router, items)}
        assert list(objects) == ["ServiceAccount", "Role", "RoleBinding", "Deployment", "Service"]
        assert objects["Role"]["rules"] == [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
        ]
        names = {item["metadata"]["name"] for item in objects.values()}
        assert len(names) == 1
        assert objects["Deployment"]["spec"]["template"]["spec"]["serviceAccountName"] in names
        port = objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"]
        assert port == router.port

    def test_a_gateway_leads_to_the_pods_of_the_pool_through_its_picker(self) -> None:
        spec = load_launch("vllm")
        assert spec is not None
        item = settings(spec)
        objects = {found["kind"]: found for found in gateway_objects(item)}
        pool = objects["InferencePool"]
        assert pool["spec"]["selector"]["matchLabels"] == {"app": pool_name(item)}
        assert pool["spec"]["targetPorts"] == [{"number": spec.port}]
        picker = pool["spec"]["endpointPickerRef"]["name"]
        assert objects["Deployment"]["metadata"]["name"] == picker == objects["Service"]["metadata"]["name"]
        assert objects["HTTPRoute"]["spec"]["rules"][0]["backendRefs"][0]["name"] == pool["metadata"]["name"]
        volume = objects["Deployment"]["spec"]["template"]["spec"]["volumes"][0]
        assert volume["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
        assert yaml.safe_load(objects["ConfigMap"]["data"]["config.yaml"])
