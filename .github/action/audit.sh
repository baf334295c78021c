#!/usr/bin/env bash
# SUITE or PYTEST, BASELINE, COMPARE_CONFIDENCE, OPTIONS, REPORT: see action.yml. The exit code is the audit's own, then the comparison's.
set -euo pipefail
read -r -a options <<<"${OPTIONS:-}"
if [[ -n "${SUITE:-}" && -n "${PYTEST:-}" ]] || [[ -z "${SUITE:-}${PYTEST:-}" ]]; then
  echo "dpsgd-audit: give either suite or pytest." >&2
  exit 2
fi
if [[ -n "${SUITE:-}" ]]; then
  like=(${BASELINE:+--like "$BASELINE" --fresh-seed})
  dpsgd-audit run "$SUITE" --out "$REPORT" --junit "$REPORT/junit.xml" --sarif "$REPORT/audit.sarif" \
    ${like[@]+"${like[@]}"} ${options[@]+"${options[@]}"}
  [[ -z "${BASELINE:-}" ]] || exec dpsgd-audit compare "$BASELINE" "$REPORT/records.json" \
    --confidence "${COMPARE_CONFIDENCE:-0.999}"
  exit 0
fi
if [[ -n "${BASELINE:-}" ]]; then
  echo "dpsgd-audit: baseline goes with suite." >&2
  exit 2
fi
read -r -a tests <<<"$PYTEST"
exec python -m pytest "${tests[@]}" --dp-audit-report "$REPORT" ${options[@]+"${options[@]}"}
