# Creates a nightly schedule for a registered family, and a queue for starts that fail. Source it in a shell in which these are set:
# AWS_REGION, CLUSTER, FAMILY, SUBNET. It also sets ACCOUNT.
ACCOUNT=$(aws sts get-caller-identity --query Account --output text)
ECS=arn:aws:ecs:$AWS_REGION:$ACCOUNT
QUEUE=arn:aws:sqs:$AWS_REGION:$ACCOUNT:$FAMILY-not-started
FILES=build/schedule
mkdir -p "$FILES"

aws sqs create-queue --queue-name "$FAMILY-not-started" --attributes MessageRetentionPeriod=1209600

cat > "$FILES/trust.json" <<END
{"Version": "2012-10-17", "Statement": [{
  "Effect": "Allow", "Principal": {"Service": "scheduler.amazonaws.com"}, "Action": "sts:AssumeRole",
  "Condition": {"StringEquals": {"aws:SourceAccount": "$ACCOUNT"}}}]}
END
cat > "$FILES/start.json" <<END
{"Version": "2012-10-17", "Statement": [
  {"Effect": "Allow", "Action": "ecs:RunTask",
   "Resource": ["$ECS:task-definition/$FAMILY", "$ECS:task-definition/$FAMILY:*"],
   "Condition": {"ArnEquals": {"ecs:cluster": "$ECS:cluster/$CLUSTER"}}},
  {"Effect": "Allow", "Action": "iam:PassRole",
   "Resource": ["arn:aws:iam::$ACCOUNT:role/$FAMILY-task", "arn:aws:iam::$ACCOUNT:role/$FAMILY-execution"],
   "Condition": {"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}}},
  {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "$QUEUE"}]}
END
aws iam create-role --role-name "$FAMILY-schedule" --assume-role-policy-document "file://$FILES/trust.json"
aws iam put-role-policy --role-name "$FAMILY-schedule" --policy-name start --policy-document "file://$FILES/start.json"

cat > "$FILES/target.json" <<END
{"Arn": "$ECS:cluster/$CLUSTER",
 "RoleArn": "arn:aws:iam::$ACCOUNT:role/$FAMILY-schedule",
 "EcsParameters": {
   "TaskDefinitionArn": "$ECS:task-definition/$FAMILY", "LaunchType": "FARGATE",
   "NetworkConfiguration": {"awsvpcConfiguration": {"Subnets": ["$SUBNET"], "AssignPublicIp": "ENABLED"}}},
 "RetryPolicy": {"MaximumRetryAttempts": 10, "MaximumEventAgeInSeconds": 3600},
 "DeadLetterConfig": {"Arn": "$QUEUE"}}
END
aws scheduler create-schedule --name "$FAMILY" --schedule-expression 'cron(0 2 * * ? *)' \
  --schedule-expression-timezone Europe/Berlin --flexible-time-window Mode=OFF --target "file://$FILES/target.json"
