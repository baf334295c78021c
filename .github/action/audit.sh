#!/usr/bin/env bash
# SUITE or PYTEST, EXPLAIN, BASELINE, COMPARE_CONFIDENCE, OPTIONS, REPORT: see action.yml.
# The exit code is that of the audits, then of the comparison, then of explain; explain runs whatever the audits found.
# What the latter two find wrong (1) also comes before audits that are inconclusive (3).
set -euo pipefail

# Words as a shell separates them, quotes included, one on each line; nothing is evaluated.
words() {
  python -c 'import shlex, sys; print("\n".join(shlex.split(sys.argv[1])))' "$1"
}

if ! OPTIONS=$(words "${OPTIONS:-}" 2>&1) || ! PYTEST=$(words "${PYTEST:-}" 2>&1); then
  echo "dpsgd-audit: options or pytest cannot be read: a quotation mark is missing." >&2
  exit 2
fi
options=() tests=()
while IFS= read -r word; do if [[ -n "$word" ]]; then options+=("$word"); fi; done <<<"$OPTIONS"
while IFS= read -r word; do if [[ -n "$word" ]]; then tests+=("$word"); fi; done <<<"$PYTEST"
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
    if [[ $code -eq 0 || "$code $compared" == "3 1" ]]; then code=$compared; fi
  fi
  if [[ "${EXPLAIN:-no}" != no ]]; then
    looked=0
    # lines that the run has named are not looked for again
    dpsgd-audit explain "$SUITE" --sarif "$log" ${known[@]+"${known[@]}"} || looked=$?
    # 4: some code could not be judged
    if [[ $looked -eq 4 && "$EXPLAIN" == yes ]]; then looked=0; fi
    if [[ $code -eq 0 || "$code $looked" == "3 1" ]]; then code=$looked; fi
  fi
  exit "$code"
fi
if [[ -n "${BASELINE:-}" ]]; then
  echo "dpsgd-audit: baseline goes with suite." >&2
  exit 2
fi
exec python -m pytest ${tests[@]+"${tests[@]}"} --dp-audit-report "$REPORT" ${options[@]+"${options[@]}"}
