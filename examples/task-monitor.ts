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
    taskDefinition.node.addValidation({ validate: () => refusals(taskDefinition) });
    monitor.addContainerDependencies({ container: batch, condition: ecs.ContainerDependencyCondition.START });
    taskDefinition.addToTaskRolePolicy(
      new iam.PolicyStatement({
        actions: ["logs:PutLogEvents"],
        resources: [`${this.logGroup.logGroupArn.replace(/:\*$/, "")}:log-stream:${this.streamPrefix}/${batch.containerName}/*`],
      }),
    );
  }
}

// What `taskdef add-monitor` refuses, too: Windows, an eleventh container, and a monitor that would use memory of the batch.
function refusals(taskDefinition: ecs.TaskDefinition): string[] {
  const resource = taskDefinition.node.defaultChild as ecs.CfnTaskDefinition;
  const definition = cdk.Stack.of(taskDefinition).resolve({
    containers: resource.containerDefinitions,
    memory: resource.memory,
    places: resource.placementConstraints,
    platform: resource.runtimePlatform,
  });
  const found: string[] = [];
  const places = JSON.stringify(definition.places ?? []);
  if (/^windows/i.test(definition.platform?.operatingSystemFamily ?? "") || /ecs\.os-(type|family) *(==|=~|in)[^&|)]*windows/i.test(places)) {
    found.push("The monitor does not work on Windows: profile Linux tasks.");
  }
  if (definition.containers.length > 10) {
    found.push("ECS allows 10 containers, with the monitor: remove one.");
  }
  const taken = definition.containers
    .filter((container: any) => container.name !== "task-monitor")
    .map((container: any) => container.memory ?? container.memoryReservation ?? 0)
    .reduce((sum: number, memory: number) => sum + memory, 0);
  if (Number(definition.memory) - taken < 32) {
    found.push(`No memory is left for the monitor: the containers may take ${taken} of the task's ${definition.memory} MiB.`);
  }
  return found;
}
