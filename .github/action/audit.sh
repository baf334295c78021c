#!/usr/bin/env bash
# SUITE or PYTEST, OPTIONS, REPORT: see action.yml. The exit code is the audit's own.
set -euo pipefail
read -r -a options <<<"${OPTIONS:-}"
if [[ -n "${SUITE:-}" && -n "${PYTEST:-}" ]] || [[ -z "${SUITE:-}${PYTEST:-}" ]]; then
  echo "dpsgd-audit: give either suite or pytest." >&2
  exit 2
fi
if [[ -n "${SUITE:-}" ]]; then
  exec dpsgd-audit run "$SUITE" --out "$REPORT" --junit "$REPORT/junit.xml" --sarif "$REPORT/audit.sarif" ${options[@]+"${options[@]}"}
fi
read -r -a tests <<<"$PYTEST"
exec python -m pytest "${tests[@]}" --dp-audit-report "$REPORT" ${options[@]+"${options[@]}"}
