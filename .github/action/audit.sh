#!/usr/bin/env bash
# SUITE or PYTEST, EXPLAIN, BASELINE, COMPARE_CONFIDENCE, OPTIONS, REPORT: see action.yml.
# The exit code is that of the audits, then of the comparison, then of explain; explain runs whatever the audits found.
set -euo pipefail
read -r -a options <<<"${OPTIONS:-}"
if [[ -n "${SUITE:-}" && -n "${PYTEST:-}" ]] || [[ -z "${SUITE:-}${PYTEST:-}" ]]; then
  echo "dpsgd-audit: give either suite or pytest." >&2
  exit 2
fi
case "${EXPLAIN:-no}" in
  no) ;;
  yes | strict)
    if [[ -z "${SUITE:-}" ]]; then
      echo "dpsgd-audit: explain goes with suite; in tests use dp_explain." >&2
      exit 2
    fi
    ;;
  *)
    echo "dpsgd-audit: explain is yes, strict or no, got '$EXPLAIN'." >&2
    exit 2
    ;;
esac
if [[ -n "${SUITE:-}" ]]; then
  code=0
  like=(${BASELINE:+--like "$BASELINE" --fresh-seed})
  # written last by a run that has records: where it is missing, they are missing or old
  log=$REPORT/audit.sarif
  rm -f "$log"
  dpsgd-audit run "$SUITE" --out "$REPORT" --junit "$REPORT/junit.xml" --sarif "$log" \
    ${like[@]+"${like[@]}"} ${options[@]+"${options[@]}"} || code=$?
  known=()
  if [[ -e "$log" ]]; then known=(--records "$REPORT/records.json"); fi
  if [[ -n "${BASELINE:-}" && -e "$log" ]]; then
    compared=0
    dpsgd-audit compare "$BASELINE" "$REPORT/records.json" --confidence "${COMPARE_CONFIDENCE:-0.999}" || compared=$?
    if [[ $code -eq 0 ]]; then code=$compared; fi
  fi
  if [[ "${EXPLAIN:-no}" != no ]]; then
    looked=0
    # lines that the run has named are not looked for again
    dpsgd-audit explain "$SUITE" --sarif "$log" ${known[@]+"${known[@]}"} || looked=$?
    # 4: some code could not be judged
    if [[ $looked -eq 4 && "$EXPLAIN" == yes ]]; then looked=0; fi
    if [[ $code -eq 0 ]]; then code=$looked; fi
  fi
  exit "$code"
fi
if [[ -n "${BASELINE:-}" ]]; then
  echo "dpsgd-audit: baseline goes with suite." >&2
  exit 2
fi
read -r -a tests <<<"$PYTEST"
exec python -m pytest "${tests[@]}" --dp-audit-report "$REPORT" ${options[@]+"${options[@]}"}
