"""Files that a manifest puts into a container: of ConfigMaps among its documents, and of compose's inline `configs`."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.launch.interpolation import Interpolation
from vllm_doctor.launch.manifests import around
from vllm_doctor.launch.start import Word
from vllm_doctor.launch.yaml_tree import Node


def of_pod(spec: Node, container: Node) -> dict[str, Word]:
    """The texts by their paths in the container."""
    volumes = {volume["name"].text: volume["configMap"] for volume in spec["volumes"].items if volume["configMap"]}
    found: dict[str, Word] = {}
    for mount in container["volumeMounts"].items:
        volume = volumes.get(mount["name"].text)
        if volume is not None:
            path = mount["mountPath"].text.rstrip("/")
            alone = mount["subPath"].text
            for name, content in _files(volume):
                if not alone or name == alone:
                    found[path if alone else f"{path}/{name}"] = content
    return found


def _files(volume: Node) -> Iterator[tuple[str, Word]]:
    data = around.config_map(volume["name"].text)
    if data is None:
        return
    items = {item["key"].text: item["path"].text for item in volume["items"].items}
    for key, node in data.fields.items():
        if node.is_scalar and (not items or key in items):
            yield items.get(key, key), Word(node.text, node.text_line)


def of_service(root: Node, service: Node, variables: Interpolation) -> dict[str, Word]:
    """Of compose's `configs` with a `content`, and of files that lie beside and are mounted."""
    found: dict[str, Word] = {}
    for config in service["configs"].items:
        source = config["source"].text or config.text
        content = root["configs"][source]["content"]
        if content.is_scalar:
            found[config["target"].text or f"/{source}"] = Word(variables.text(content.text), content.text_line)
    for volume in service["volumes"].items:
        source, _, rest = volume.text.partition(":")
        source, target = volume["source"].text or source, volume["target"].text or rest.partition(":")[0]
        text = around.file_beside(source) if source.startswith("./") and target else None
        if text is not None:
            found[target] = Word(text, 1)
    return found
