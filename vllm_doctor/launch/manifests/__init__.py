"""Where manifests hold a server's start: compose, Kubernetes and what is built on it, Helm values, --config YAML.

One module a form, which gives the servers that one document starts. `forms.py` has them in their order, `container.py`
and `pod.py` what several of them have.
"""

from vllm_doctor.launch.manifests.around import files
from vllm_doctor.launch.manifests.chart import CHART_KEYS
from vllm_doctor.launch.manifests.config_file import ConfigFile
from vllm_doctor.launch.manifests.container import Container
from vllm_doctor.launch.manifests.forms import starts
from vllm_doctor.launch.manifests.llm_inference_service import Pool
from vllm_doctor.launch.manifests.production_stack import Runtime, StackModel
from vllm_doctor.launch.manifests.values import Values

__all__ = ["CHART_KEYS", "ConfigFile", "Container", "Pool", "Runtime", "StackModel", "Values", "files", "starts"]
