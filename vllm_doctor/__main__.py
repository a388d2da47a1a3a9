"""`python -m vllm_doctor`."""

import sys

from vllm_doctor.cli import main

sys.exit(main())
