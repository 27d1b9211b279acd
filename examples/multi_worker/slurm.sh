#!/bin/bash
# Two hosts by Slurm, a worker on each: sbatch examples/multi_worker/slurm.sh
# The folder of backups must be one that all hosts read.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8

backup=${BACKUP:-$SLURM_SUBMIT_DIR/backup}
export WORKERS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" |
    sed 's/.*/"&:12345"/' | paste -sd, -)

# Where a worker dies, all of them start again from the last backup.
for attempt in 1 2 3 4; do
    srun --kill-on-bad-exit=1 bash -c '
        export TF_CONFIG="{\"cluster\": {\"worker\": [$WORKERS]},
            \"task\": {\"type\": \"worker\", \"index\": $SLURM_PROCID}}"
        exec python examples/multi_worker/train.py --backup "$1"
    ' worker "$backup" && exit 0
done
exit 1
