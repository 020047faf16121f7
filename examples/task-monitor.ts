// The monitor as an extension for task definitions of the AWS CDK. `logGroup` and `streamPrefix` are those of the batch's `awsLogs` driver.
import * as cdk from "aws-cdk-lib";
import * as ecs from "aws-cdk-lib/aws-ecs";
import * as iam from "aws-cdk-lib/aws-iam";
import * as logs from "aws-cdk-lib/aws-logs";

export class TaskMonitor implements ecs.ITaskDefinitionExtension {
  constructor(
    private readonly image: ecs.ContainerImage,
    private readonly logGroup: logs.ILogGroup,
    private readonly streamPrefix: string,
  ) {}

  extend(taskDefinition: ecs.TaskDefinition): void {
    const batch = taskDefinition.defaultContainer!;
    const monitor = taskDefinition.addContainer("task-monitor", {
      image: this.image,
      command: ["monitor"],
      essential: false,
      stopTimeout: cdk.Duration.seconds(120),
      memoryReservationMiB: 32,
      memoryLimitMiB: 128,
      user: "65532",
      readonlyRootFilesystem: true,
      environment: { TASK_PROFILER_CONTAINER: batch.containerName },
      logging: ecs.LogDrivers.awsLogs({ logGroup: this.logGroup, streamPrefix: this.streamPrefix }),
    });
    monitor.addContainerDependencies({ container: batch, condition: ecs.ContainerDependencyCondition.START });
    taskDefinition.addToTaskRolePolicy(
      new iam.PolicyStatement({
        actions: ["logs:PutLogEvents"],
        resources: [`${this.logGroup.logGroupArn.replace(/:\*$/, "")}:log-stream:${this.streamPrefix}/${batch.containerName}/*`],
      }),
    );
  }
}
